"""Models of others, made on the fly with random weights, answer here as they answer in their own program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file

import seq2see
from conftest import sweep
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.readers import padded
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import UserError
from seq2see.interchange import huggingface, to_ctranslate2
from seq2see.interchange.huggingface import REFUSED
from seq2see.interchange.imported import NEVER
from seq2see.interchange.reading import import_model
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder
from seq2see.storage.weights import read_weights

LINES = [
    "The cat sat on the mat, and the dog was sleeping.",
    "A man reads a letter at the window of his house.",
    "Two children play with a red ball in the garden.",
    "It rains today; tomorrow the sun will shine again.",
    "She wrote 27 pages about the history of the town.",
    "Wo ist der Bahnhof? Er ist am Ende der Straße.",
    "Les enfants jouent dans le jardin avec un ballon.",
    "What is it? It is nothing, he said, and left.",
] * 8
TEXTS = ["The cat is red.", "A letter about the town, 27 pages.", "ballon", "Where is the garden? ☃☃ No  one knows."]
V = 200
SHAPE = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
             encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, dropout=0.1)  # fmt: skip


def trained_spm(path: Path, kind: str = "unigram", **settings: Any) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=str(path.with_suffix("")), vocab_size=V, model_type=kind,
        hard_vocab_limit=False, minloglevel=2, character_coverage=1.0, **settings,
    )  # fmt: skip
    path.with_suffix(".model").rename(path)
    return path


def shaken(model: Any) -> Any:
    """Give every number of a model a value of its own: norms and biases too, so that a mix-up is seen."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and not parameter.requires_grad:
            continue
        noise = torch.randn_like(parameter)
        scale = 0.3 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
        parameter.data = noise * scale + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    return model.eval()


def marian(path: Path, **settings: Any) -> Any:
    for side in ("source", "target"):
        trained_spm(path / f"{side}.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "source.spm"))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())), "<pad>"]
    (path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    pad = len(names) - 1
    (path / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    config = transformers.MarianConfig(
        vocab_size=len(names), pad_token_id=pad, eos_token_id=0, bos_token_id=None, decoder_start_token_id=pad,
        forced_eos_token_id=0, scale_embedding=True, activation_function="swish", **{**SHAPE, **settings},
    )  # fmt: skip
    model = shaken(transformers.MarianMTModel(config))
    model.generation_config.update(bad_words_ids=[[pad]], num_beams=4, max_length=30)
    return model


def m2m100(path: Path, **settings: Any) -> Any:
    trained_spm(path / "sentencepiece.bpe.model", "bpe")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "sentencepiece.bpe.model"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size()))]
    (path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    about = {
        "additional_special_tokens": ["__en__", "__fr__"],
        "tokenizer_class": "M2M100Tokenizer",
        "num_madeup_words": 2,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    config = transformers.M2M100Config(
        vocab_size=len(names) + 4, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2,
        scale_embedding=True, activation_function="relu", **{**SHAPE, **settings},
    )  # fmt: skip
    model = shaken(transformers.M2M100ForConditionalGeneration(config))
    model.generation_config.update(forced_bos_token_id=len(names) + 1, num_beams=4, max_length=30, length_penalty=0.8)
    return model


def bart(path: Path, **settings: Any) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    engine = ByteLevelBPETokenizer()
    engine.train_from_iterator(
        LINES, vocab_size=300, show_progress=False, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    engine.save_model(str(path))
    config = transformers.BartConfig(
        vocab_size=engine.get_vocab_size(), pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2,
        activation_function="gelu", **{**SHAPE, **settings},
    )  # fmt: skip
    model = shaken(transformers.BartForConditionalGeneration(config))
    model.generation_config.update(
        forced_bos_token_id=0, forced_eos_token_id=2, num_beams=4, max_length=20, early_stopping=True
    )
    return model


def mbart(path: Path, **settings: Any) -> Any:
    trained_spm(path / "sentencepiece.bpe.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "sentencepiece.bpe.model"))
    size = pieces.get_piece_size() + 1
    about = {"additional_special_tokens": ["en_XX", "fr_XX"], "tokenizer_class": "MBartTokenizer", "src_lang": "en_XX"}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    config = transformers.MBartConfig(
        vocab_size=size + 3, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=size + 1,
        scale_embedding=True, activation_function="gelu", **{**SHAPE, **settings},
    )  # fmt: skip
    model = shaken(transformers.MBartForConditionalGeneration(config))
    model.generation_config.update(num_beams=4, max_length=25, length_penalty=1.0, forced_eos_token_id=2)
    return model


def pegasus(path: Path, **settings: Any) -> Any:
    trained_spm(path / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "spiece.model"))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PegasusTokenizer"}))
    config = transformers.PegasusConfig(
        vocab_size=pieces.get_piece_size() + 103, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        scale_embedding=True, activation_function="relu", **{**SHAPE, **settings},
    )  # fmt: skip
    model = shaken(transformers.PegasusForConditionalGeneration(config))
    model.generation_config.update(num_beams=4, max_length=30, length_penalty=0.8)
    return model


FAMILIES = {"marian": marian, "m2m100": m2m100, "bart": bart, "mbart": mbart, "pegasus": pegasus}
LANGUAGES = {"m2m100": ("en", "fr"), "mbart": ("en_XX", "fr_XX")}


def made(name: str, place: Path) -> tuple[Any, Seq2Seq]:
    """Make a model of a family, write it as they do, import it."""
    theirs = place / "theirs"
    theirs.mkdir()
    model = FAMILIES[name](theirs)
    model.save_pretrained(theirs)
    import_model(str(theirs), place / "ours", LANGUAGES.get(name, (None, None)))
    return model, seq2see.load(place / "ours", engine="torch")


@pytest.fixture(scope="module", params=FAMILIES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Seq2Seq]:
    return request.param, *made(request.param, tmp_path_factory.mktemp(request.param))


def light(*names: str) -> Any:
    """Look at these families; at the others in ``make verify``."""
    some = [pytest.param(name, marks=[] if name in names else pytest.mark.heavy) for name in FAMILIES]
    return pytest.mark.parametrize("both", some, indirect=True, scope="module")


def difference(theirs: Any, ours: Transformer, pad: int, vocabulary: int) -> float:
    """Return the largest difference of logits on a batch with padding, as a share of the largest logit."""
    torch.manual_seed(2)
    rows = [torch.randint(5, vocabulary - 5, (n,)).tolist() for n in (9, 4, 13)]
    targets = torch.randint(5, vocabulary - 5, (3, 7))
    source, mask = padded(rows, pad)
    with torch.no_grad():
        real = (source != pad).long()
        # With a cache FSMT would let every position see all that follow.
        found = theirs(input_ids=source, attention_mask=real, decoder_input_ids=targets, use_cache=False)
        a = found.logits
        b = ours(source, targets, mask)
    return float((a - b).abs().max() / a[a > NEVER].abs().max())


def test_the_logits_are_theirs(both: tuple[str, Any, Seq2Seq]) -> None:
    _, theirs, ours = both
    pad, size = ours.tokenizers.source.pad, ours.config.model.source_vocabulary
    assert difference(theirs, ours.transformer, pad, size) <= 1e-5


WRONG: list[dict[str, Any]] = [
    {"positions": "paper"}, {"positions": "opennmt"}, {"scale_embeddings": None}, {"activation": "relu"},
    {"norm": None},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_settings_are_seen_in_the_logits(both: tuple[str, Any, Seq2Seq], wrong: dict[str, Any]) -> None:
    """Answers can look fine with wrong positions. The logits cannot."""
    _, theirs, ours = both
    config = ours.config.model
    (name, value), own = next(iter(wrong.items())), getattr(ours.config.model, next(iter(wrong)))
    other = {"scale_embeddings": not own, "norm": "pre" if own == "post" else "post"}.get(name, value)
    if name == "activation" and own == "relu":
        other = "gelu"
    changed = network_of(config.but(**{name: other})).eval()
    weights = dict(ours.transformer.named_parameters())
    for key, parameter in changed.named_parameters():
        if key in weights:
            parameter.data = weights[key].data
    assert difference(theirs, changed, ours.tokenizers.source.pad, config.source_vocabulary) > 1e-3


def answers_of(theirs: Any, sources: list[list[int]], pad: int, **settings: Any) -> list[list[int]]:
    ids, _ = padded(sources, pad)
    with torch.no_grad():
        rows = theirs.generate(input_ids=ids, attention_mask=(ids != pad).long(), **settings).tolist()
    end = theirs.generation_config.eos_token_id
    start = 1  # what the decoder starts with is no part of an answer
    return [row[start : row.index(end, start) + 1] if end in row[start:] else row[start:] for row in rows]


@pytest.mark.parametrize("beam", sweep([1, 4], 1))
def test_answers_are_those_of_generate(both: tuple[str, Any, Seq2Seq], beam: int) -> None:
    _, theirs, ours = both
    torch.manual_seed(3)
    source, size = ours.tokenizers.source, ours.config.model.source_vocabulary
    sources = [[*source.before, *torch.randint(5, size - 5, (n,)).tolist(), *source.after] for n in (3, 8, 5, 12, 1, 9)]
    special, rules = Special.of(ours.tokenizers), ours.config.decoding.but(beam=beam)
    expected = answers_of(theirs, sources, source.pad, num_beams=beam)
    if beam == 1:
        found = [answer.ids for answer in greedy(ours.transformer, sources, special, rules)]
    else:
        found = [answers[0].ids for answers in beam_search(ours.transformer, sources, special, rules)]
    assert found == expected


@pytest.mark.heavy
def test_the_benchmark_measures_each_setting() -> None:
    from benchmarks import interchange

    records = [*interchange.settings((2, 3))]
    assert len(records) == len(interchange.FAMILIES) + len(interchange.SETTINGS)
    assert all(record["ratio_2"] > 0 and record["ratio_3"] > 0 for record in records)


@pytest.mark.heavy
def test_the_benchmark_compares_each_family() -> None:
    from benchmarks.interchange import interchange

    for record in interchange(count=6):
        assert record["largest_logit_difference"] <= 1e-5
        assert record["greedy_same"] + record["greedy_ties"] == 6
        assert record["beam_4_same"] + record["beam_4_ties"] == 6


def test_texts_are_cut_as_sentencepiece_cuts_them(both: tuple[str, Any, Seq2Seq]) -> None:
    name, _, ours = both
    source = ours.tokenizers.source
    path = ours.path
    assert path is not None
    files = {"marian": "source.spm", "pegasus": "spiece.model"}
    spm = path.parent / "theirs" / files.get(name, "sentencepiece.bpe.model")
    for text in (*LINES[:8], *TEXTS):
        ids = source.encode(text)
        inner = ids[len(source.before) : len(ids) - len(source.after)]
        if spm.is_file():
            pieces = sentencepiece.SentencePieceProcessor(model_file=str(spm))
            known = [
                piece if pieces.piece_to_id(piece) != pieces.unk_id() else None
                for piece in pieces.encode(text, out_type=str)
            ]
            assert [
                t if i != source.unknown else None for t, i in zip(source.tokens(inner), inner, strict=True)
            ] == known
        else:
            theirs = transformers.BartTokenizer.from_pretrained(path.parent / "theirs")
            assert ids == theirs(text)["input_ids"]
            assert source.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


@light("mbart")
def test_everything_works_as_for_a_model_of_ours(both: tuple[str, Any, Seq2Seq], tmp_path: Path) -> None:
    _, _, ours = both
    assert ours.answerer.folded("a  b") == "a  b"
    answers = ours.answers(TEXTS[:3], n_best=2)
    assert all(answer.output is not None and len(answer.alternatives) == 1 for answer in answers)
    pairs = [(TEXTS[0], "The red cat."), (TEXTS[1], "27 pages.")]
    assert all(value <= 0 for values in ours.log_probabilities(pairs) for value in values)
    assert ours.align(pairs)[0].links
    assert ours.evaluate(pairs).pairs == 2
    trace = ours.trace(TEXTS[0])
    assert (
        trace.output_ids
        == greedy(ours.transformer, [trace.source_ids], Special.of(ours.tokenizers), ours.config.decoding.but(beam=1))[
            0
        ].ids
    )
    muted = ours.trace(TEXTS[0], edit={"encoder.layers.0.self_attention.z": 0.0})
    assert not torch.equal(muted["logits"][0], trace["logits"][0])
    ours.save(tmp_path / "copy")
    again = seq2see.load(tmp_path / "copy", engine="torch")
    assert again.predict(TEXTS[:3]) == ours.predict(TEXTS[:3])
    assert again.config.decoding == ours.config.decoding


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Marian folder."""
    path = tmp_path_factory.mktemp("whole")
    marian(path, encoder_layers=1, decoder_layers=1).save_pretrained(path)
    return path


def broken(
    whole: Path, tmp_path: Path, change: Callable[[Path], object], match: str, languages: Any = (None, None)
) -> None:
    """Break a copy of a folder, and see it refused in one sentence with nothing left behind."""
    theirs = Path(shutil.copytree(whole, tmp_path / "theirs"))
    change(theirs)
    with pytest.raises(UserError, match=match) as error:
        import_model(str(theirs), tmp_path / "ours", languages)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000
    assert {path.name for path in tmp_path.iterdir()} <= {"theirs", "outside"}


def edited(name: str, **settings: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        found = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps({**found, **settings}))

    return change


def pickled(path: Path) -> None:
    (path / "model.safetensors").unlink()
    torch.save({"a": Path("x"), "b": torch.ones(2)}, path / "pytorch_model.bin")


def truncated(path: Path) -> None:
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])


def pointer(path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 300\n"
    (path / "model.safetensors").write_text(text)


def with_weights(change: Callable[[dict[str, torch.Tensor], str], object]) -> Callable[[Path], None]:
    """Change the weights; ``change`` gets the name of a matrix, too."""

    def changed(path: Path) -> None:
        weights = load_file(path / "model.safetensors")
        change(weights, "model.encoder.layers.0.fc1.weight")
        save_file(weights, path / "model.safetensors")

    return changed


def linked(name: str, target: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).rename(path.parent / "outside")
        (path / name).symlink_to(target)

    return change


def with_spm(more: bytes) -> Callable[[Path], None]:
    """Put something at the end of a SentencePiece model."""
    return lambda path: (path / "source.spm").write_bytes((path / "source.spm").read_bytes() + more)


#: A map of characters that ends in the middle, and a piece of 976 letters, as a SentencePiece model holds them.
CHARSMAP = b"\x1a\x89\x08\x12\x86\x08" + (1024).to_bytes(4, "little") + b"\xff" * 1024 + b"a\0"

BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda path: (path / "config.json").unlink(), "is not a supported model"),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "has no weights"),
    "pointer": (pointer, "Git LFS pointer"),
    "truncated": (truncated, "cannot be read as safetensors"),
    "pickled": (pickled, "would run code"),
    "unknown": (edited("config.json", model_type="funny"), "'funny' is not supported"),
    "activation": (edited("config.json", activation_function="gelu_new"), "activation 'gelu_new'"),
    "shape": (edited("config.json", d_model=36), "do not match the config"),
    "layers": (edited("config.json", encoder_layers=10**12), "whole number"),
    "deep": (lambda path: (path / "config.json").write_text("[" * 100_000), "not valid JSON"),
    "spm": (lambda path: (path / "source.spm").write_bytes(b"\x0a\xff\xff"), "not a SentencePiece model"),
    "charsmap": (with_spm(CHARSMAP), "map of characters"),
    "nan": (with_weights(lambda weights, name: weights[name].fill_(float("nan"))), "not all finite"),
    "a wide beam": (edited("generation_config.json", num_beams=101), "beam is 101"),
    "a link of weights": (linked("model.safetensors", "../outside"), "link out of its folder"),
    "a device": (linked("vocab.json", "/dev/zero"), "link out of its folder"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_sentence(name: str, whole: Path, tmp_path: Path) -> None:
    broken(whole, tmp_path, *BAD[name])


def test_every_family_that_is_known_not_to_fit_has_its_own_sentence(tmp_path: Path) -> None:
    assert {
        "t5", "umt5", "longt5", "switch_transformers", "nllb-moe", "pegasus_x", "led", "prophetnet", "bigbird_pegasus",
        "whisper", "encoder-decoder", "blenderbot-small",
    } <= REFUSED.keys()  # fmt: skip
    assert len({*REFUSED.values()}) == len(REFUSED)
    assert not REFUSED.keys() & huggingface.FAMILIES.keys()
    for name, reason in REFUSED.items():
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name, "feed_forward_proj": "relu"}))
        with pytest.raises(UserError) as error:
            import_model(str(tmp_path), tmp_path / "ours")
        assert reason in str(error.value)
        assert "\n" not in str(error.value)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "feed_forward_proj": "gated-gelu"}))
    with pytest.raises(UserError, match=r"T5 v1\.1 has .*, and a gated feed-forward network"):
        import_model(str(tmp_path), tmp_path / "ours")
    assert "gated" not in REFUSED["t5"]


def test_pytorch_files_and_shards_are_read_too(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    model = marian(theirs)
    model.save_pretrained(theirs, max_shard_size="20KB")
    assert len(list(theirs.glob("*.safetensors"))) > 1
    import_model(str(theirs), tmp_path / "shards")
    for path in theirs.glob("*.safetensors*"):
        path.unlink()
    torch.save(model.state_dict(), theirs / "pytorch_model.bin")
    import_model(str(theirs), tmp_path / "pickle")
    a, b = (read_weights(tmp_path / name / "model.safetensors") for name in ("shards", "pickle"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("cut", [1, 40, 75])
def test_a_damaged_ctranslate2_file_is_refused(cut: int, tmp_path: Path) -> None:
    theirs = Path(shutil.copytree(folder.find("dates") / "ctranslate2", tmp_path / "theirs"))
    data = (theirs / "model.bin").read_bytes()
    for damaged in (data[:cut], data[:cut] + b"\xff\xff\xff\xff" + data[cut + 4 :]):
        (theirs / "model.bin").write_bytes(damaged)
        with pytest.raises(UserError, match=r"model\.bin"):
            import_model(str(theirs), tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_an_argos_package_is_read(tmp_path: Path) -> None:
    """A zip with a CTranslate2 folder and a SentencePiece model, made of a model of ours."""
    import zipfile

    (tmp_path / "theirs").mkdir()
    marian(tmp_path / "theirs").save_pretrained(tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    model = seq2see.load(tmp_path / "ours", engine="torch")
    to_ctranslate2.export(tmp_path / "ours", model.transformer, model.tokenizers, rules=model.config.decoding)
    with zipfile.ZipFile(tmp_path / "translate-en_fr.argosmodel", "w") as package:
        for file in (tmp_path / "ours/ctranslate2").iterdir():
            package.write(file, f"translate-en_fr/model/{file.name}")
        package.write(tmp_path / "theirs/source.spm", "translate-en_fr/sentencepiece.model")
        package.writestr("translate-en_fr/metadata.json", json.dumps({"from_code": "en", "to_code": "fr"}))
    import_model(str(tmp_path / "translate-en_fr.argosmodel"), tmp_path / "argos")
    found = seq2see.load(tmp_path / "argos", engine="torch")
    assert "en to fr" in found.card
    assert torch.equal(found.transformer.output.bias, model.transformer.output.bias)
    assert found.tokenizers.source.encode("The cat.") == model.tokenizers.source.encode("The cat.")[:-1]


def fairseq_checkpoint(place: Path, theirs: Any, **others: Any) -> int:
    """Write M2M100 as fairseq, from which its names came, with dictionaries and codes; return the number of tokens."""
    from argparse import Namespace

    weights = {key.removeprefix("model."): value.clone() for key, value in theirs.state_dict().items()}
    weights["decoder.output_projection.weight"] = weights.pop("lm_head.weight")
    table = weights.pop("shared.weight")
    weights = {f"{half}.embed_tokens.weight": table for half in ("encoder", "decoder")} | weights
    weights = {key: value for key, value in weights.items() if "embed_positions" not in key}
    config = theirs.config
    settings = Namespace(**{
        **dict(
            encoder_layers=2, decoder_layers=2, encoder_embed_dim=32, decoder_embed_dim=32,
            encoder_ffn_embed_dim=config.encoder_ffn_dim, decoder_ffn_embed_dim=config.decoder_ffn_dim,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_normalize_before=True,
            decoder_normalize_before=True, encoder_learned_pos=False, decoder_learned_pos=False, activation_fn="relu",
            share_all_embeddings=True, share_decoder_input_output_embed=True, dropout=0.1,
        ),
        **others,
    })  # fmt: skip
    torch.save({"args": settings, "model": weights}, place / "checkpoint_best.pt")
    words = ["l@@", "lo@@", "w", "low", *(f"w{number}" for number in range(len(table) - 8))]
    for side in ("a", "b"):
        (place / f"dict.{side}.txt").write_text("".join(f"{word} 1\n" for word in words))
    (place / "bpe.codes").write_text("#version: 0.2\nl o\nlo w</w>\n")
    return len(table)


def test_a_fairseq_checkpoint_is_read(both: tuple[str, Any, Seq2Seq], tmp_path: Path) -> None:
    name, theirs, _ = both
    if name != "m2m100":
        return
    size = fairseq_checkpoint(tmp_path, theirs)
    import_model(str(tmp_path / "checkpoint_best.pt"), tmp_path / "ours", ("a", "b"))
    ours = seq2see.load(tmp_path / "ours", engine="torch")
    assert difference(theirs, ours.transformer, 1, size) <= 1e-5
    assert ours.tokenizers.source.encode("low l☃w") == [7, 4, 3, 6, 2]
    assert ours.tokenizers.source.decode([7, 4, 6, 2]) == "low lw"
    with pytest.raises(UserError, match="Give the languages with"):
        import_model(str(tmp_path / "checkpoint_best.pt"), tmp_path / "again")


def test_a_checkpoint_of_fairseq2_is_refused_with_what_would_do(tmp_path: Path) -> None:
    names = ["decoder_frontend.embed.weight", "encoder.layers.0.ffn.inner_proj.weight", "final_proj.weight"]
    weights = {name: torch.ones(4, 4) for name in names}
    for found in (weights, {"model": weights}):
        torch.save(found, tmp_path / "model.pt")
        with pytest.raises(UserError, match=r"fairseq2.*only weights.*hf:facebook/nllb-200") as error:
            import_model(str(tmp_path / "model.pt"), tmp_path / "ours")
        assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_cuts_as_its_own_tokenizer(both: tuple[str, Any, Seq2Seq]) -> None:
    name, _, ours = both
    if name != "marian":
        return
    assert ours.path is not None
    theirs = transformers.MarianTokenizer.from_pretrained(ours.path.parent / "theirs")
    for text in (*TEXTS, "a <pad> within", "</s> first"):
        assert ours.tokenizers.source.encode(text) == theirs(text)["input_ids"]
        target = ours.tokenizers.target.encode(text)
        assert target[1:] == theirs(text_target=text)["input_ids"]
        assert ours.tokenizers.target.decode(target) == theirs.decode(target[1:], skip_special_tokens=True)
