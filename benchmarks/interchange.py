"""Imports beside ``transformers``: the largest difference of logits, and how many answers are those of ``generate``.

Models of each family have random weights, norms and biases; inputs are random. No tokenizer takes part.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure
from seq2see import machine
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.readers import padded
from seq2see.decoding.search import beam_search, greedy
from seq2see.decoding.torch_engine import threads_of
from seq2see.errors import UserError
from seq2see.interchange.huggingface import model_of
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq, load

V, BATCH, TIE = 400, 50, 1e-4
SHAPE = dict(vocab_size=V, d_model=64, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
             decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128,
             scale_embedding=True)  # fmt: skip
#: For each family: its class, its special ids, and what it forces.
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Marian": ("MarianMTModel", dict(pad_token_id=V - 1, eos_token_id=0, decoder_start_token_id=V - 1,
               activation_function="swish"), dict(bad_words_ids=[[V - 1]], forced_eos_token_id=0)),
    "M2M100": ("M2M100ForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
               activation_function="relu"), dict(forced_bos_token_id=7)),
    "Bart": ("BartForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2),
             dict(forced_bos_token_id=0, forced_eos_token_id=2, early_stopping=True)),
    "MBart": ("MBartForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=9),
              dict(forced_eos_token_id=2)),
    "Pegasus": ("PegasusForConditionalGeneration", dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
                activation_function="relu"), dict(length_penalty=0.8)),
    "Mvp": ("MvpForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2),
            dict(forced_bos_token_id=0, forced_eos_token_id=2)),
    "PLBart": ("PLBartForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=9),
               dict(forced_eos_token_id=2)),
    "Blenderbot": ("BlenderbotForConditionalGeneration", dict(pad_token_id=0, bos_token_id=1, eos_token_id=2,
                   decoder_start_token_id=1), dict(min_length=5, length_penalty=0.65, no_repeat_ngram_size=3)),
    "FSMT": ("FSMTForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
             src_vocab_size=V, tgt_vocab_size=V, langs=["en", "de"]), dict(bad_words_ids=[[1]], forced_eos_token_id=2)),
}  # fmt: skip

#: Settings beside those of the families: a family, its config, and its generation config (None takes one away).
SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a narrower decoder": ("Bart", dict(encoder_ffn_dim=256), {}),
    "tables of their own": ("Bart", dict(tie_word_embeddings=False), {}),
    "nothing forced": ("Bart", {}, dict(forced_bos_token_id=None, forced_eos_token_id=None)),
    "forced_bos_token_id": ("Marian", {}, dict(forced_bos_token_id=7)),
    "several ends": ("Bart", {}, dict(eos_token_id=[2, 50, 60])),
    "begin_suppress_tokens": ("Marian", {}, dict(begin_suppress_tokens=[*range(50, 250)])),
    "min_length": ("Marian", {}, dict(min_length=12)),
    "min_new_tokens": ("Bart", {}, dict(min_new_tokens=9)),
    "no_repeat_ngram_size": ("Bart", {}, dict(no_repeat_ngram_size=2)),
    "nothing of the source": ("Pegasus", {}, dict(encoder_no_repeat_ngram_size=2)),
    "repetition_penalty": ("Pegasus", {}, dict(repetition_penalty=1.5)),
    "bart-large-cnn": ("Bart", {}, dict(min_length=12, no_repeat_ngram_size=3, length_penalty=2.0, early_stopping=True)),
    "distilbart": ("Bart", {}, dict(min_length=12, no_repeat_ngram_size=3, length_penalty=2.0, forced_eos_token_id=None)),
}  # fmt: skip

#: Shapes of published models. NLLB's is scaled down: a third of its layers, an eighth of its vocabulary.
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "opus-mt": ("Marian", dict(vocab_size=58_101, d_model=512, encoder_layers=6, decoder_layers=6,
                encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
                max_position_embeddings=512)),
    "nllb-600M scaled down": ("M2M100", dict(vocab_size=32_000, d_model=1024, encoder_layers=4, decoder_layers=4,
                encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
                max_position_embeddings=1024)),
    "bart-base": ("Bart", dict(vocab_size=50_265, d_model=768, encoder_layers=6, decoder_layers=6,
                encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
                max_position_embeddings=1024, scale_embedding=False)),
}  # fmt: skip


def interchange(count: int = 500) -> Iterator[dict[str, Any]]:
    """Compare each family on so many inputs."""
    try:
        import transformers
    except ImportError:
        raise UserError("The package transformers is not installed: pip install 'seq2see[huggingface]'.") from None
    for name in FAMILIES:
        yield _family(transformers, name, count)
    for setting, (name, shape, generation) in SETTINGS.items():
        yield _family(transformers, name, min(count, 100), setting, shape, generation)


def published() -> Iterator[dict[str, Any]]:
    """Compare the logits of models as large as published ones, on a few inputs."""
    import transformers

    for shape, (name, sizes) in PUBLISHED.items():
        theirs, ours, _ = _both(transformers, name, sizes)
        differences = [_difference(theirs, ours, *_batch(8, 60), FAMILIES[name][1]["pad_token_id"]) for _ in range(3)]
        yield {"shape": shape, "family": name, "inputs": 24, "largest_logit_difference": max(differences)}


def _both(
    transformers: Any, name: str, sizes: dict[str, Any], generation: dict[str, Any] | None = None
) -> tuple[Any, Transformer, Any]:
    """Make a model of a family with random weights; return it, what we import of it, and its rules of decoding."""
    kind, ids, rules_of = FAMILIES[name]
    torch.manual_seed(1)
    theirs = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**{**SHAPE, **ids, **sizes}))
    for key, parameter in theirs.named_parameters():
        if parameter.requires_grad and "embed_positions" not in key:
            scale = 0.3 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            parameter.data = torch.randn_like(parameter) * scale + ("norm" in key and key.endswith("weight"))
    theirs.eval()
    theirs.generation_config.update(**{"max_length": 30, "num_beams": 4, **rules_of, **(generation or {})})
    with tempfile.TemporaryDirectory() as place:
        theirs.save_pretrained(place)
        ours, rules = model_of(Path(place))
    return theirs, ours, rules


def _batch(rows: int, longest: int) -> tuple[list[list[int]], torch.Tensor]:
    """Draw sources of different lengths, and targets of one length."""
    lengths = torch.randint(1, longest, (rows,)).tolist()
    return [torch.randint(10, V - 10, (n,)).tolist() for n in lengths], torch.randint(10, V - 10, (rows, 12))


@torch.no_grad()
def _difference(theirs: Any, ours: Transformer, sources: list[list[int]], target: torch.Tensor, pad: int) -> float:
    """Return the largest difference of logits, relative to the largest logit, with padding in the batch."""
    source, mask = padded(sources, pad)
    # With a cache FSMT would let every position see all that follow.
    found = theirs(input_ids=source, attention_mask=_real(source, mask), decoder_input_ids=target, use_cache=False)
    logits = found.logits
    return float((logits - ours(source, target, mask)).abs().max() / logits.abs().max())


def _real(source: torch.Tensor, mask: Any) -> torch.Tensor:
    return torch.ones_like(source) if mask.keys is None else mask.keys.long()


def _family(
    transformers: Any,
    name: str,
    count: int,
    setting: str = "",
    shape: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
) -> dict[str, Any]:
    _, ids, _ = FAMILIES[name]
    theirs, ours, rules = _both(transformers, name, shape or {}, generation)
    first = theirs.generation_config.forced_bos_token_id
    forced = () if first is None else (first,)
    special = Special(ids["decoder_start_token_id"], ids["eos_token_id"], ids["pad_token_id"], forced)
    record: dict[str, Any] = {"family": name, "setting": setting} if setting else {"family": name}
    record |= {"inputs": count, "largest_logit_difference": 0.0}
    same, ties = {1: 0, 4: 0}, {1: 0, 4: 0}
    for first in range(0, count, BATCH):
        sources, target = _batch(min(BATCH, count - first), 20)
        difference = _difference(theirs, ours, sources, target, special.pad)
        record["largest_logit_difference"] = max(record["largest_logit_difference"], difference)
        source, mask = padded(sources, special.pad)
        real = _real(source, mask)
        for beam in (1, 4):
            with torch.no_grad():
                rows = theirs.generate(input_ids=source, attention_mask=real, num_beams=beam).tolist()
            expected = [_cut(row[1:], {special.end, *rules.other_ends}) for row in rows]
            if beam == 1:
                found = [answer.ids for answer in greedy(ours, sources, special, rules.but(beam=1))]
            else:
                found = [best[0].ids for best in beam_search(ours, sources, special, rules.but(beam=4))]
            for row, (x, y) in enumerate(zip(found, expected, strict=True)):
                same[beam] += x == y
                ties[beam] += x != y and _is_tie(ours, sources[row], special, rules, x, y)
    record |= {"greedy_same": same[1], "greedy_ties": ties[1], "beam_4_same": same[4], "beam_4_ties": ties[4]}
    return record


def _cut(row: list[int], ends: set[int]) -> list[int]:
    return row[: next((place + 1 for place, token in enumerate(row) if token in ends), len(row))]


# --- speed and memory ---------------------------------------------------------------------------------------------


def speed(sentences: tuple[int, ...] = (20, 500), rounds: int = 5) -> Iterator[dict[str, Any]]:
    """Measure an import at the shape of OPUS-MT, and its answers beside ``generate``, both on one thread of the CPU.

    Sources have 5 to 25 tokens and answers exactly 16, so that both search equally long. Answers come through
    whichever engine the model takes.
    """
    import transformers

    with _one_thread():
        sizes = {
            **PUBLISHED["opus-mt"][1],
            **FAMILIES["Marian"][1],
            "pad_token_id": 58_100,
            "decoder_start_token_id": 58_100,
        }
        torch.manual_seed(1)
        theirs: Any = transformers.MarianMTModel(transformers.MarianConfig(scale_embedding=True, **sizes))
        theirs.eval()
        theirs.generation_config.update(max_length=17, min_length=17, num_beams=4, bad_words_ids=[[58_100]])
        with tempfile.TemporaryDirectory() as place:
            home = Path(place)
            (home / "theirs").mkdir()
            theirs.save_pretrained(home / "theirs")
            _write_vocabulary(home / "theirs", sizes["vocab_size"])
            weights = (home / "theirs/model.safetensors").stat().st_size
            yield {"what": "import", "parameters": theirs.num_parameters(), **_imported(home, weights)}
            model = load(home / "ours")
            draw = torch.Generator().manual_seed(2)
            rows = [torch.randint(10, 50_000, (5 + n % 21,), generator=draw).tolist() for n in range(max(sentences))]
            for beam in (1, 4):
                bound = _most_possible(theirs, sorted(rows[: min(sentences)], key=len), beam)
                for count in sentences:
                    beside = _beside(theirs, model, sorted(rows[:count], key=len), beam, rounds)
                    yield {"what": "answers", "sentences": count, "beam": beam, **beside, "most_possible": bound}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let both sides compute on one thread: CPU seconds of threads that wait for each other tell nothing."""
    machine.use(1)
    try:
        with threads_of(1):
            yield
    finally:
        machine.use(None)


def _beside(theirs: Any, model: Seq2Seq, rows: list[list[int]], beam: int, rounds: int) -> dict[str, Any]:
    """Answer rows by both in turns, a batch at a time, and return the CPU seconds, their ratio and its spread.

    Few rows are answered in several rounds, and many are as many turns by themselves.
    """
    rules, engine = model.config.decoding.but(beam=beam), model.network.engine_for(len(rows), beam)
    engine.ids(rows[:2], rules)
    _generated(theirs, rows[:2], beam)
    batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    rounds = max(1, rounds // len(batches))
    ours, home, same = [], [], 0
    for part in batches * rounds:
        (found, seconds), (expected, theirs_) = (
            _timed(lambda part=part: engine.ids(part, rules)),  # type: ignore[misc]
            _timed(lambda part=part: _generated(theirs, part, beam)),  # type: ignore[misc]
        )
        ours.append(seconds)
        home.append(theirs_)
        ends = {model.tokenizers.target.end, *rules.other_ends}
        same += sum(x == _cut(row[1:], ends) for x, row in zip(found, expected.tolist(), strict=True))
    ratios = sorted(other / one for one, other in zip(ours, home, strict=True))
    return {
        "answered_by": engine.name,
        "cpu_seconds": round(sum(ours) / rounds, 2),
        "generate_cpu_seconds": round(sum(home) / rounds, 2),
        "ratio": round(sum(home) / sum(ours), 2),
        "ratios": [round(ratios[0], 2), round(ratios[-1], 2)],
        "same": same // rounds,
    }


def _timed(answer: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return answer(), time.process_time() - began


def _most_possible(theirs: Any, rows: list[list[int]], beam: int) -> float:
    """Return how much faster than ``generate`` a search would be that needed time for its matrix products alone."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        _generated(theirs, rows, beam)
    each = {event.key: event.self_cpu_time_total for event in found.key_averages()}
    products = sum(each.get(f"aten::{name}", 0.0) for name in ("mm", "addmm"))
    return float(round(sum(each.values()) / products, 2))


LANGUAGES = {"M2M100": ("__en__", "__fr__"), "MBart": ("en_XX", "fr_XX"), "PLBart": ("en_XX", "fr_XX")}


def settings(sentences: tuple[int, ...] = (20, 500), rounds: int = 5) -> Iterator[dict[str, Any]]:
    """Measure the import of a small model of each family and setting, and its answers beside ``generate``.

    Models have d_model 64 and 3+3 layers, sources 1 to 19 tokens, and the beam is 4: what is measured is the work around
    the arithmetic. The shape of OPUS-MT, in ``speed``, measures the arithmetic.
    """
    import transformers

    with _one_thread():
        everything: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {n: (n, {}, {}) for n in FAMILIES}
        everything |= SETTINGS
        for setting, (name, shape, generation) in everything.items():
            theirs, _, _ = _both(transformers, name, shape, generation)
            torch.manual_seed(2)
            rows = _batch(max(sentences), 20)[0]
            with tempfile.TemporaryDirectory() as place:
                home = Path(place)
                (home / "theirs").mkdir()
                theirs.save_pretrained(home / "theirs")
                _write_tokens(home / "theirs", FAMILIES[name][1], LANGUAGES.get(name, ()))
                weights = (home / "theirs/model.safetensors").stat().st_size
                record: dict[str, Any] = {
                    "what": "setting",
                    "family": name,
                    "setting": "" if setting == name else setting,
                }
                record |= _imported(home, weights, LANGUAGES.get(name, ()))
                model = load(home / "ours")
                for count in sentences:
                    beside = _beside(theirs, model, rows[:count], 4, rounds)
                    record |= {f"{key}_{count}": value for key, value in beside.items()}
                yield record


# --- the table of the documentation -------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[1] / "docs/bring-your-model.md"
MARKS = "<!-- written by: python -m benchmarks interchange --store -->", "<!-- end of what is written -->"


def store(records: list[dict[str, Any]], document: Path = DOCUMENT) -> None:
    """Write the speeds into the documentation, between its marks."""
    text = document.read_text(encoding="utf-8")
    before, first, rest = text.partition(MARKS[0])
    _, last, after = rest.partition(MARKS[1])
    if not first or not last:
        raise UserError(f"{document.name} has no lines {MARKS[0]!r} and {MARKS[1]!r}, between which a table belongs.")
    document.write_text(f"{before}{first}\n{_tables(records)}\n{last}{after}", encoding="utf-8")


def _tables(records: list[dict[str, Any]]) -> str:
    here = measure.machine()
    of = {what: [r for r in records if r.get("what") == what] for what in ("import", "answers", "setting")}
    (own,) = of["import"]
    lines = [
        "",
        f"Measured on {date.today()} on {here['cpu']}, torch {here['packages']['torch']}, transformers "
        f"{here['packages']['transformers']}, float32, one thread for both, in CPU seconds. Both answer each batch "
        f"of up to {BATCH} in turn, in one process. The machine had other work (load {here['load']:.0f} on "
        f"{here['cores']} cores), so the ratio of each turn varies: least and most are in brackets.",
        "",
        f"The import at the shape of OPUS-MT ({own['parameters'] / 1e6:.0f} million parameters, "
        f"{own['megabytes']:.0f} MB): {own['cpu_seconds']} CPU seconds, {own['seconds']} seconds by the clock, "
        f"{own['own_memory_of_weights']} × the "
        "weights in memory of its own.",
        "",
        "| OPUS-MT's shape | answered by | CPU seconds | `generate` | ratio | same answers | most possible |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in of["answers"]:
        how = "greedy" if r["beam"] == 1 else f"beam {r['beam']}"
        lines.append(
            f"| {r['sentences']} sentences, {how} | {r['answered_by']} | {r['cpu_seconds']} | "
            f"{r['generate_cpu_seconds']} | {_ratio(r)} | {r['same']} of {r['sentences']} | {r['most_possible']}× |"
        )
    lines += [
        "",
        "“Most possible” is the ratio of a search that would need time for the matrix products of `generate` alone.",
        "",
        "| small models, beam 4 | import: CPU seconds | MB of its own | 20 sentences | 500 sentences | same answers |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['family']}{', ' if r['setting'] else ''}{r['setting']} | {r['cpu_seconds']} | {r['own_megabytes']} | "
        f"{_ratio(r, '_20')} | {_ratio(r, '_500')} | {r['same_500']} of 500 |"
        for r in of["setting"]
    ]
    return "\n".join([*lines, ""])


def _ratio(record: dict[str, Any], suffix: str = "") -> str:
    least, most = record[f"ratios{suffix}"]
    return f"{record[f'ratio{suffix}']}× ({least} – {most})"


def _write_tokens(path: Path, ids: dict[str, Any], languages: tuple[str, ...]) -> None:
    """Write a tokenizer of made-up words with the special tokens of a family in their places."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    names = [f"w{number}" for number in range(V)]
    names[3] = "<unk>"
    names[ids["pad_token_id"]], names[ids["eos_token_id"]] = "<pad>", "</s>"
    for place, language in zip(
        (8, ids["decoder_start_token_id"] if "_XX" in "".join(languages) else 7), languages, strict=False
    ):
        names[place] = language
    engine = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens([AddedToken(name, normalized=False) for name in ("<pad>", "</s>", *languages)])
    engine.save(str(path / "tokenizer.json"))


def _generated(theirs: Any, rows: list[list[int]], beam: int) -> Any:
    source, mask = padded(rows, theirs.config.pad_token_id)
    with torch.inference_mode():
        return theirs.generate(input_ids=source, attention_mask=_real(source, mask), num_beams=beam)


def _write_vocabulary(path: Path, size: int) -> None:
    """Write a tokenizer of made-up words: only its size matters here."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["</s>", "<unk>", *(f"w{number}" for number in range(size - 3)), "<pad>"]
    engine = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.save(str(path / "tokenizer.json"))


def _imported(home: Path, weights: int, languages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Import in a process of its own, which has all modules loaded, and say its time and its own memory."""
    code = (
        "import sys, time; from seq2see.interchange.reading import import_model; import torch\n"
        "def own():\n"
        "    return sum(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('RssAnon'))\n"
        "import threading; peak = [own()]; first = peak[0]; done = threading.Event()\n"
        "def watch():\n"
        "    while not done.wait(0.01): peak[0] = max(peak[0], own())\n"
        "thread = threading.Thread(target=watch); thread.start()\n"
        "began, cpu = time.perf_counter(), time.process_time()\n"
        "import_model(sys.argv[1], __import__('pathlib').Path(sys.argv[2]), tuple(sys.argv[3:]) or (None, None))\n"
        "took, cpu = time.perf_counter() - began, time.process_time() - cpu; done.set(); thread.join()\n"
        "print(took, cpu, (peak[0] - first) * 1024)"
    )
    command = [sys.executable, "-c", code, str(home / "theirs"), str(home / "ours")]
    command += [name.strip("_") for name in languages]
    took, cpu, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    return {
        "seconds": round(took, 1),
        "cpu_seconds": round(cpu, 1),
        "own_memory_of_weights": round(peak / weights, 2),
        "own_megabytes": round(peak / 1e6),
        "megabytes": round(weights / 1e6, 1),
    }


@torch.no_grad()
def _is_tie(ours: Transformer, source: list[int], special: Special, rules: Any, *answers: list[int]) -> bool:
    """Whether two answers have the same score up to rounding."""
    scores = []
    for answer in answers:
        logits = ours(torch.tensor([source]), torch.tensor([[special.start, *answer[:-1]]]))[0].log_softmax(-1)
        values = logits.gather(1, torch.tensor(answer)[:, None])[len(special.forced) :]
        scores.append(float(values.sum()) / rules.divisor(len(answer)))
    return bool(abs(scores[0] - scores[1]) < TIE)
