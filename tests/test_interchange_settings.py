"""Every setting of ``generate`` that an import follows: the tokens of greedy search and of a beam of 4 are theirs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file

import seq2see
from conftest import sweep
from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.decoding.graphs import GraphDecoder
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.readers import padded
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import UserError
from seq2see.interchange import huggingface, huggingface_text, languages, to_ctranslate2, to_huggingface
from seq2see.interchange.reading import import_model
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer
from test_interchange import FAMILIES, LANGUAGES, LINES, SHAPE, difference, edited, shaken, trained_spm

#: Sentences of the challenge set, as long as the small models of this test can read.
SENTENCES = [
    sentence
    for line in (Path(__file__).parent / "challenge-en-fr.jsonl").read_text(encoding="utf-8").splitlines()
    for sentence in json.loads(line)["text"].split(". ")
    if 8 < len(sentence) < 40
][:50]


def mvp(path: Path, **settings: Any) -> Any:
    """BART under another name."""
    config = FAMILIES["bart"](path).config.to_dict()
    made = transformers.MvpConfig(**{**{k: v for k, v in config.items() if k in SHAPE or k in NAMED}, **settings})
    model = shaken(transformers.MvpForConditionalGeneration(made))
    model.generation_config.update(forced_bos_token_id=0, forced_eos_token_id=2, num_beams=4, max_length=20)
    return model


NAMED = ("vocab_size", "pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id", "activation_function")


def plbart(path: Path, **settings: Any) -> Any:
    """mBART's tokenizer with other languages before BART's norms."""
    trained_spm(path / "sentencepiece.bpe.model", "bpe")
    size = sentencepiece.SentencePieceProcessor(model_file=str(path / "sentencepiece.bpe.model")).get_piece_size() + 1
    about = {"tokenizer_class": "PLBartTokenizer", "language_codes": "base"}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    config = transformers.PLBartConfig(
        vocab_size=size + 4, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=size + 2,
        activation_function="gelu", **{**SHAPE, **settings},
    )  # fmt: skip
    model = shaken(transformers.PLBartForConditionalGeneration(config))
    model.generation_config.update(num_beams=4, max_length=25, forced_eos_token_id=2)
    return model


def blenderbot(path: Path, **settings: Any) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    engine = ByteLevelBPETokenizer(add_prefix_space=True)
    names = ["__null__", "__start__", "__end__", "__unk__"]
    engine.train_from_iterator(LINES, vocab_size=300, show_progress=False, special_tokens=names)
    engine.save_model(str(path))
    kinds = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), names, strict=True))
    about = {"tokenizer_class": "BlenderbotTokenizer", "add_prefix_space": True, **kinds}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    config = transformers.BlenderbotConfig(
        vocab_size=engine.get_vocab_size(), pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        activation_function="gelu", **{**SHAPE, "scale_embedding": True, **settings},
    )  # fmt: skip
    model = shaken(transformers.BlenderbotForConditionalGeneration(config))
    model.generation_config.update(num_beams=4, max_length=25, min_length=5, length_penalty=0.65, no_repeat_ngram_size=3,
                                   encoder_no_repeat_ngram_size=3)  # fmt: skip
    return model


def fsmt(path: Path, **settings: Any) -> Any:
    """fairseq's models of WMT: two vocabularies, in which </w> ends a word."""
    letters = sorted({letter for line in LINES for letter in line if letter != " "})
    sizes = []
    for side, extra in (("src", ["ca", "cat</w>"]), ("tgt", [])):
        names = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters), *extra]
        (path / f"vocab-{side}.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
        sizes.append(len(names))
    (path / "merges.txt").write_text("#version: 0.2\nc a 9\nca t</w> 8\n")
    (path / "tokenizer_config.json").write_text(json.dumps({"langs": ["en", "de"]}))
    config = transformers.FSMTConfig(
        src_vocab_size=sizes[0], tgt_vocab_size=sizes[1], langs=["en", "de"], **{**SHAPE, **settings}
    )
    model = transformers.FSMTForConditionalGeneration(config)
    tables = [half.embed_positions.weight.data.clone() for half in (model.model.encoder, model.model.decoder)]
    shaken(model)
    for half, table in zip((model.model.encoder, model.model.decoder), tables, strict=True):
        half.embed_positions.weight.data = table
    # A padding token within an answer would not count as a position there.
    model.generation_config.update(num_beams=4, max_length=25, bad_words_ids=[[1]], forced_eos_token_id=2)
    return model


MAKERS = {**FAMILIES, "mvp": mvp, "plbart": plbart, "blenderbot": blenderbot, "fsmt": fsmt}
CODES = {**LANGUAGES, "plbart": ("java", "en_XX")}

#: A family, what its config is made with, and what its generation config says; None removes a setting.
SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{name: (name, {}, {}) for name in FAMILIES},
    "mvp": ("mvp", {}, {}),
    "plbart": ("plbart", {}, {}),
    "blenderbot": ("blenderbot", {}, {}),
    "fsmt": ("fsmt", {}, {}),
    "marian, tables of their own": ("marian", dict(tie_word_embeddings=False), {}),
    "bart, tables of their own": ("bart", dict(tie_word_embeddings=False), {}),
    "pegasus, tables of their own": ("pegasus", dict(tie_word_embeddings=False), {}),
    "bart, a narrower decoder": ("bart", dict(encoder_ffn_dim=80, decoder_ffn_dim=32), {}),  # 32 is d_model, too
    "m2m100, a narrower encoder": ("m2m100", dict(encoder_ffn_dim=24, decoder_ffn_dim=64), {}),
    "bart, nothing forced": ("bart", {}, dict(forced_bos_token_id=None, forced_eos_token_id=None)),
    "marian, a forced beginning": ("marian", {}, dict(forced_bos_token_id=7)),
    "pegasus, a forced beginning": ("pegasus", {}, dict(forced_bos_token_id=120)),
    "mbart, several ends": ("mbart", {}, dict(eos_token_id=[2, 9, 30], forced_eos_token_id=None)),
    "bart, several ends": ("bart", {}, dict(eos_token_id=[2, 50, 60], early_stopping=False, length_penalty=2.5)),
    "marian, no first tokens": ("marian", {}, dict(begin_suppress_tokens=[*range(40, 90)])),
    "bart, no first tokens": ("bart", {}, dict(begin_suppress_tokens=[*range(100, 250)])),
    "marian, min_length": ("marian", {}, dict(min_length=12)),
    "bart, min_new_tokens": ("bart", {}, dict(min_new_tokens=9)),
    "bart, no_repeat_ngram_size": ("bart", {}, dict(no_repeat_ngram_size=2, max_length=28)),
    "mbart, no token twice": ("mbart", {}, dict(no_repeat_ngram_size=1)),
    "marian, repetition_penalty": ("marian", {}, dict(repetition_penalty=1.7)),
    "bart, repetition_penalty": ("bart", {}, dict(repetition_penalty=1.3, early_stopping=False)),
    "bart, a penalty that attracts": ("bart", {}, dict(repetition_penalty=0.8)),
    "pegasus, nothing of the source": ("pegasus", {}, dict(encoder_no_repeat_ngram_size=1)),
    "marian, no pairs of the source": ("marian", {}, dict(encoder_no_repeat_ngram_size=2)),
    "suppressed": ("pegasus", {}, dict(suppress_tokens=[*range(110, 160)], bad_words_ids=[[161], [1]])),
    # The settings of facebook/bart-large-cnn and sshleifer/distilbart-cnn-12-6, with shorter answers.
    "bart-large-cnn": ("bart", {}, dict(min_length=12, max_length=31, no_repeat_ngram_size=3, length_penalty=2.0,
                       num_beams=4, early_stopping=True, forced_bos_token_id=0, forced_eos_token_id=2)),
    "every rule": ("bart", {}, dict(eos_token_id=[2, 50, 60], begin_suppress_tokens=[*range(100, 250)], min_length=6,
                   max_length=9, no_repeat_ngram_size=2, encoder_no_repeat_ngram_size=1, repetition_penalty=1.2,
                   suppress_tokens=[*range(70, 90)], early_stopping=False, length_penalty=2.0)),
    "distilbart": ("bart", {}, dict(min_length=12, max_length=31, no_repeat_ngram_size=3, length_penalty=2.0,
                   num_beams=4, early_stopping=True, forced_bos_token_id=0, forced_eos_token_id=None)),
}  # fmt: skip


def made_with(name: str, place: Path) -> tuple[Any, Seq2Seq]:
    """Make a model with some settings, write it as they do, read it as they do, and import it."""
    family, shape, generation = SETTINGS[name]
    theirs = place / "theirs"
    theirs.mkdir()
    made = MAKERS[family](theirs, **shape)
    if "min_" in name:  # only a model that wants to end is held back
        made.final_logits_bias[0, made.config.eos_token_id] += 5
    if "eos_token_id" in generation:  # in a beam all of them come first, and it must keep others, too
        made.final_logits_bias[0, generation["eos_token_id"]] += 2.5
    made.save_pretrained(theirs)
    file = theirs / "generation_config.json"
    settings = {**json.loads(file.read_text()), **generation}
    file.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(theirs).eval()
    import_model(str(theirs), place / "ours", CODES.get(family, (None, None)))
    return model, seq2see.load(place / "ours", engine="torch")


def sources_of(ours: Seq2Seq, count: int) -> list[list[int]]:
    """Return some sources: sentences that people wrote, half of them at most, and random tokens."""
    torch.manual_seed(3)
    source, size = ours.tokenizers.source, ours.config.model.source_vocabulary
    written = source.encode_batch(SENTENCES[: count // 2])
    drawn = [
        [*source.before, *torch.randint(5, size - 5, (1 + n % 20,)).tolist(), *source.after]
        for n in range(count - len(written))
    ]
    return written + drawn


def generated(theirs: Any, sources: list[list[int]], pad: int, **settings: Any) -> list[list[int]]:
    """Return what ``generate`` answers."""
    # Where it looks at the source it takes padding for tokens, so that only sources of one length go together.
    alone = theirs.generation_config.encoder_no_repeat_ngram_size
    found: dict[int, list[int]] = {}
    for length in {*map(len, sources)} if alone else {0}:
        rows = [row for row, source in enumerate(sources) if not alone or len(source) == length]
        ids, mask = padded([sources[row] for row in rows], pad)
        real = torch.ones_like(ids) if mask.keys is None else mask.keys.long()
        with torch.no_grad():
            answers = theirs.generate(input_ids=ids, attention_mask=real, **settings).tolist()
        found |= dict(zip(rows, answers, strict=True))
    ends = theirs.generation_config.eos_token_id
    ends = {*ends} if isinstance(ends, list) else {ends}
    return [_cut(found[row][1:], ends) for row in range(len(sources))]


def _cut(row: list[int], ends: set[int]) -> list[int]:
    """Leave the padding after an end away."""
    return row[: next((place + 1 for place, token in enumerate(row) if token in ends), len(row))]


def found_by(ours: Seq2Seq, sources: list[list[int]], rules: DecodingConfig) -> list[list[int]]:
    """Return what our search answers."""
    special = Special.of(ours.tokenizers)
    if rules.beam == 1:
        return [answer.ids for answer in greedy(ours.transformer, sources, special, rules)]
    return [best[0].ids for best in beam_search(ours.transformer, sources, special, rules)]


def logits_differ(theirs: Any, ours: Seq2Seq, sources: list[list[int]]) -> float:
    """Return the largest difference of the logits of random targets, as a share of the largest logit."""
    size, pad = ours.config.model.target_vocabulary, ours.tokenizers.source.pad
    source, mask = padded(sources, pad)
    target = torch.randint(5, size - 5, (len(sources), 12))
    real = torch.ones_like(source) if mask.keys is None else mask.keys.long()
    with torch.no_grad():
        # With a cache FSMT would let every position see all that follow.
        said = theirs(input_ids=source, attention_mask=real, decoder_input_ids=target, use_cache=False).logits
        return float((said - ours.transformer(source, target, mask)).abs().max() / said.abs().max())


def agree_in_float64(theirs: Any, ours: Seq2Seq, sources: list[list[int]], rules: DecodingConfig) -> bool:
    """Whether both give the same answers in float64, where hardly any two prefixes are equally likely."""
    theirs.double()
    ours.transformer.double()
    pad = ours.tokenizers.source.pad
    expected = [generated(theirs, [source], pad, num_beams=rules.beam)[0] for source in sources]
    found = [found_by(ours, [source], rules)[0] for source in sources]
    theirs.float()
    ours.transformer.float()
    return found == expected


INPUTS, BATCH = 500, 50


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETTINGS)
def test_answers_and_logits_of_500_inputs_are_theirs(name: str, tmp_path: Path) -> None:
    theirs, ours = made_with(name, tmp_path)
    sources = sources_of(ours, INPUTS)
    graphs = GraphDecoder(ours.transformer, Special.of(ours.tokenizers))
    assert len(sources) == INPUTS
    assert "Not followed" not in ours.card
    ties = 0
    for first in range(0, INPUTS, BATCH):
        part = sources[first : first + BATCH]
        assert logits_differ(theirs, ours, part) <= 1e-5
        for beam in (1, 4):
            rules = ours.config.decoding.but(beam=beam)
            expected = generated(theirs, part, ours.tokenizers.source.pad, num_beams=beam)
            found = found_by(ours, part, rules)
            other = [row for row, ids in enumerate(found) if ids != expected[row]]
            # Where two prefixes are equally likely up to rounding, float32 may keep either.
            assert agree_in_float64(theirs, ours, [part[row] for row in other], rules)
            ties += len(other)
            if first == 0:
                assert graphs.ids(part, rules) == expected
                # What one sentence is answered does not depend on the others.
                assert graphs.ids(part[1:3], rules) == expected[1:3]
    assert ties <= INPUTS // 250


@pytest.mark.parametrize(
    "name",
    [
        "mvp",
        "plbart",
        "blenderbot",
        "fsmt",
        "marian, tables of their own",
        "bart, a narrower decoder",
        "m2m100, a narrower encoder",
    ],
)
def test_answers_and_logits_are_theirs(name: str, tmp_path: Path) -> None:
    theirs, ours = made_with(name, tmp_path)
    sources = sources_of(ours, 4)
    assert logits_differ(theirs, ours, sources) <= 1e-5
    expected = generated(theirs, sources, ours.tokenizers.source.pad, num_beams=1, max_length=9)
    assert found_by(ours, sources, ours.config.decoding.but(beam=1, length_offset=8)) == expected


#: The value at which each rule of a search does nothing.
IDLE: dict[str, Any] = {
    "suppressed": (), "first_suppressed": (), "other_ends": (), "min_length": 0, "no_repeat": 0, "no_repeat_source": 0,
    "repetition_penalty": 1.0, "forced_end": False,
}  # fmt: skip


def test_every_rule_of_generate_is_followed(tmp_path: Path) -> None:
    """All rules at once; and each of them matters, since the answers without it are others."""
    theirs, ours = made_with("every rule", tmp_path)
    torch.manual_seed(3)
    sources = torch.randint(5, ours.config.model.source_vocabulary - 5, (8, 40)).tolist()
    graphs = GraphDecoder(ours.transformer, Special.of(ours.tokenizers))
    assert "Not followed" not in ours.card
    for beam in (4, 1):
        rules = ours.config.decoding.but(beam=beam)
        expected = generated(theirs, sources, ours.tokenizers.source.pad, num_beams=beam)
        assert found_by(ours, sources, rules) == expected
        assert graphs.ids(sources, rules) == expected
    for rule, value in IDLE.items():
        assert found_by(ours, sources, rules.but(**{rule: value})) != expected, rule


THROUGH_CTRANSLATE2 = {  # the widths of beam for which it gives the same answers
    "bart, tables of their own": (1, 4), "bart, nothing forced": (1, 4), "bart, min_new_tokens": (1,),
    "mbart, several ends": (1,), "bart, no_repeat_ngram_size": (1,), "bart-large-cnn": (1,),
    "mbart, no token twice": (), "bart, repetition_penalty": (), "marian, no pairs of the source": (),
    "bart, no first tokens": (),
}  # fmt: skip
LIGHT = ("bart-large-cnn",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in LIGHT else pytest.mark.heavy) for name in THROUGH_CTRANSLATE2]
)
def test_ctranslate2_answers_the_same_or_not_at_all(name: str, tmp_path: Path) -> None:
    _, ours = made_with(name, tmp_path)
    rules, sources = ours.config.decoding, sources_of(ours, 24)
    to_ctranslate2.export(tmp_path / "ours", ours.transformer, ours.tokenizers, rules=rules)
    model = seq2see.load(tmp_path / "ours", engine="ctranslate2")
    for beam in (1, 4):
        if beam not in THROUGH_CTRANSLATE2[name]:
            with pytest.raises(UserError, match="CTranslate2 cannot answer this"):
                model.network.engine_for(1, beam)
            assert seq2see.load(tmp_path / "ours").network.engine_for(100, beam).name.startswith("torch")
            continue
        through = model.network.engine_for(100, beam)
        assert through.name.startswith("ctranslate2")
        expected = ours.network.engine_for(100, beam).ids(sources, rules.but(beam=beam))
        assert through.ids(sources, rules.but(beam=beam)) == expected
        found = through.search(sources, rules.but(beam=beam))
        plain = ours.network.engine_for(100, beam).search(sources, rules.but(beam=beam))
        assert [one[0].finished for one in found] == [one[0].finished for one in plain]


def test_the_tokenizers_of_more_families_are_theirs(tmp_path: Path) -> None:
    for name, kind in (("blenderbot", "BlenderbotTokenizer"), ("plbart", "PLBartTokenizer")):
        (tmp_path / name).mkdir()
        _, ours = made_with(name, tmp_path / name)
        code = {"src_lang": "__java__"} if name == "plbart" else {}
        theirs = getattr(transformers, kind).from_pretrained(tmp_path / name / "theirs", **code)
        # Blenderbot's class forgets the end, which the tokenizer.json of its models adds.
        end = [2] if name == "blenderbot" else []
        for text in SENTENCES[:20]:
            assert ours.tokenizers.source.encode(text) == theirs(text)["input_ids"] + end
    (tmp_path / "fsmt").mkdir()
    source = made_with("fsmt", tmp_path / "fsmt")[1].tokenizers.source
    assert source.tokens(source.encode("The cat")) == ["T", "h", "e</w>", "cat</w>", "</s>"]
    assert source.decode(source.encode("The cat")) == "The cat"


# --- languages ----------------------------------------------------------------------------------------------------


def test_the_lists_of_languages_are_those_of_transformers() -> None:
    from transformers.models.m2m_100 import tokenization_m2m_100 as m2m100
    from transformers.models.mbart import tokenization_mbart as mbart
    from transformers.models.mbart50 import tokenization_mbart50 as mbart50
    from transformers.models.nllb import tokenization_nllb as nllb

    assert m2m100.FAIRSEQ_LANGUAGE_CODES == {"m2m100": languages.M2M100, "wmt21": languages.WMT21}
    assert nllb.FAIRSEQ_LANGUAGE_CODES == languages.NLLB
    assert mbart.FAIRSEQ_LANGUAGE_CODES == languages.MBART
    assert mbart50.FAIRSEQ_LANGUAGE_CODES == languages.MBART50


def many_languages(path: Path, missing: int = 0, **about: Any) -> Any:
    """Write M2M100 with all its languages, of which the folder lists some; \"fr\" and \"en\" are subwords, too."""
    model = FAMILIES["m2m100"](path)
    names = json.loads((path / "vocab.json").read_text())
    for name in ("en", "fr"):
        names.setdefault(name, len(names))
    (path / "vocab.json").write_text(json.dumps(names))
    listed = [f"__{code}__" for code in languages.M2M100[missing:]]
    settings = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": listed, **about}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    config = model.config
    config.vocab_size = len(names) + len(languages.M2M100) + 8
    torch.manual_seed(5)
    made = transformers.M2M100ForConditionalGeneration(config).eval()
    made.generation_config.update(num_beams=1, max_length=16)
    made.save_pretrained(path)
    return made


@pytest.mark.parametrize("missing", sweep([0, 99, 7, 100], 2))
def test_a_language_is_its_special_token_and_never_a_subword(missing: int, tmp_path: Path) -> None:
    """An incomplete list is completed by that of the family, whose size the table proves."""
    path = tmp_path / "theirs"
    path.mkdir()
    model = many_languages(path, missing)
    import_model(str(path), tmp_path / "ours", ("en", "fr"))
    ours = seq2see.load(tmp_path / "ours", engine="torch")
    theirs = transformers.M2M100Tokenizer.from_pretrained(path, src_lang="en", tgt_lang="fr")
    assert ours.tokenizers.source.before == [theirs.get_lang_id("en")]
    assert ours.tokenizers.target.before[1:] == [theirs.get_lang_id("fr")]
    sources = ours.tokenizers.source.encode_batch(SENTENCES[:20])
    assert sources == theirs(SENTENCES[:20])["input_ids"]
    expected = generated(model, sources, 1, forced_bos_token_id=theirs.get_lang_id("fr"))
    assert greedy_of(ours, sources) == expected


def greedy_of(ours: Seq2Seq, sources: list[list[int]]) -> list[list[int]]:
    found = greedy(ours.transformer, sources, Special.of(ours.tokenizers), ours.config.decoding.but(beam=1))
    return [answer.ids for answer in found]


# --- what is not followed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (dict(exponential_decay_length_penalty=[5, 1.1]), "exponential_decay_length_penalty"),
        (dict(do_sample=True), "do_sample = True"),
        (dict(bad_words_ids=[[5, 6]]), "bad_words_ids of several tokens"),
        (dict(early_stopping="never"), "early_stopping = 'never'"),
        (dict(forced_eos_token_id=7), "forced_eos_token_id = 7"),
        (dict(renormalize_logits=True), "renormalize_logits = True"),
    ],
)
def test_what_is_not_followed_is_printed(setting: dict[str, Any], said: str, small: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from seq2see.cli import app

    theirs = Path(shutil.copytree(small, tmp_path / "theirs"))
    edited("generation_config.json", **setting)(theirs)
    done = CliRunner().invoke(app, ["import", str(theirs), "--out", str(tmp_path / "ours")])
    assert done.exit_code == 0
    printed = " ".join(done.output.split())
    assert "Not followed" in printed
    assert said in printed
    assert said in (tmp_path / "ours/card.md").read_text()


def test_tables_that_the_file_holds_are_used_whatever_the_config_says(tmp_path: Path) -> None:
    """A config may say that tables are tied while the file holds two: ``transformers`` takes the file's word."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    FAMILIES["bart"](theirs, tie_word_embeddings=False).save_pretrained(theirs)
    file = theirs / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tie_word_embeddings": True}))
    model = transformers.BartForConditionalGeneration.from_pretrained(theirs).eval()
    import_model(str(theirs), tmp_path / "ours")
    ours = seq2see.load(tmp_path / "ours", engine="torch")
    assert difference(model, ours.transformer, 1, ours.config.model.source_vocabulary) <= 1e-5
    weights = load_file(theirs / "model.safetensors")
    for half in ("encoder", "decoder"):
        del weights[f"model.{half}.embed_tokens.weight"]
    save_file(weights, theirs / "model.safetensors", {"format": "pt"})
    import_model(str(theirs), tmp_path / "one")  # as older versions wrote it: one table for both
    one = seq2see.load(tmp_path / "one", engine="torch").transformer
    assert torch.equal(one.encoder.embedding.table.weight, weights["model.shared.weight"])


# --- strangers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small")
    FAMILIES["marian"](path, encoder_layers=1, decoder_layers=1).save_pretrained(path)
    return path


#: Rules of the search that both sides have, and the settings of ``generate`` that say them.
SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a beam": (dict(beam=3, length_penalty=0.8), dict(num_beams=3, length_penalty=0.8, early_stopping=False)),
    "a beam that is full": (dict(beam=3, stopping="full"), dict(num_beams=3, length_penalty=1.0, early_stopping=True)),
    "a forced end": (dict(forced_end=True), dict(forced_eos_token_id=66)),
    "suppressed": (dict(suppressed=(3, 5)), dict(bad_words_ids=[[3], [5]])),
    "no first tokens": (dict(first_suppressed=(4,)), dict(begin_suppress_tokens=[4])),
    "several ends": (dict(other_ends=(7,)), dict(eos_token_id=[66, 7])),
    "a least length": (dict(min_length=6), dict(min_length=7)),
    "no pairs twice": (dict(no_repeat=2), dict(no_repeat_ngram_size=2)),
    "no token twice": (dict(no_repeat=1), dict(no_repeat_ngram_size=1)),
    "nothing of the source": (dict(no_repeat_source=1), dict(encoder_no_repeat_ngram_size=1)),
    "a penalty": (dict(repetition_penalty=1.3), dict(repetition_penalty=1.3)),
}


@pytest.mark.parametrize("name", SAID)
def test_rules_become_settings_of_generate_and_the_same_rules_again(name: str) -> None:
    ours, theirs = SAID[name]
    config, tokenizers = ModelConfig.of(max_length=40), Tokenizers.one(Tokenizer.characters())
    rules = DecodingConfig.of(
        **{
            "penalty": "length",
            "length_ratio": 0.0,
            "length_offset": 25,
            "length_penalty": 1.0,
            "stopping": "beaten",
            **ours,
        }
    )
    said = to_huggingface._generation(Config("pairs", config, TrainingConfig(), rules), tokenizers)
    ids = {"pad_token_id": 67, "bos_token_id": 65, "eos_token_id": 66, "decoder_start_token_id": 65}
    assert said == {**ids, "max_length": 26, "num_beams": 1, **theirs}
    again, notes = huggingface._decoding(said, config)
    assert again == rules
    assert notes == []


@pytest.mark.parametrize("family", huggingface.FAMILIES)
def test_what_each_family_leaves_out_is_what_transformers_takes(family: str) -> None:
    said = transformers.AutoConfig.for_model(family)
    taken = {
        "scale_embedding": False, "activation_function": "gelu", "dropout": 0.1, **huggingface.DEFAULTS.get(family, {})
    }  # fmt: skip
    assert {name: getattr(said, name) for name in taken} == taken


def test_the_cache_of_the_hub_is_followed(small: Path, tmp_path: Path) -> None:
    """Its snapshots are links into ``blobs`` beside them."""
    snapshot, blobs = tmp_path / "models--a--b/snapshots/1234", tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(small.iterdir()):
        shutil.copy(file, blobs / f"{number:040}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number:040}")
    import_model(str(snapshot), tmp_path / "ours")
    (snapshot / "vocab.json").unlink()
    (snapshot / "vocab.json").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="link out of its folder"):
        import_model(str(snapshot), tmp_path / "again")


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"a/model.bin": bytes(64 << 20)}, "far more than a model"),
        ({"a/model.bin": b"1", "b/model.bin": b"2"}, "twice"),
        ({f"{n}": b"" for n in range(10_001)}, "10,001 files"),
        ({"a/x": b""}, "has no model.bin"),
    ],
)
def test_archives_are_bounded(entries: dict[str, bytes], match: str, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        for name, data in entries.items():
            package.writestr(name, data)
    with pytest.raises(UserError, match=match):
        import_model(str(tmp_path / "a.argosmodel"), tmp_path / "ours")
    assert [one.name for one in tmp_path.iterdir()] == ["a.argosmodel"]


@pytest.mark.parametrize(("kind", "codes", "last"), [
    ("PLBartTokenizer", "base", [*languages.PLBART, "<mask>"]), ("PLBartTokenizer", "multi", languages.PLBART_MORE),
    ("MBart50Tokenizer", "multi", [*languages.MBART50, "<mask>"]), ("MBartTokenizer", "", [*languages.MBART, "<mask>"]),
])  # fmt: skip
def test_a_kind_of_tokenizer_tells_its_languages(kind: str, codes: str, last: list[str], tmp_path: Path) -> None:
    trained_spm(tmp_path / "sentencepiece.bpe.model", "bpe")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    size = pieces.get_piece_size() + 1 + len(last)
    about = {"tokenizer_class": kind, "language_codes": codes}
    for engine in huggingface_text._engines(tmp_path, "mbart", about, (size, size)):
        assert [engine.id_to_token(number) for number in range(size - len(last), size)] == last
