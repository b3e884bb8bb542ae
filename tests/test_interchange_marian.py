"""Marian's own files: the numbers of `transformers` and of CTranslate2's converter; a sentence for what does not fit."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
from ctranslate2.converters import marian as their_converter
from ctranslate2.converters.opus_mt import OpusMTConverter

import seq2see
from conftest import sweep
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import UserError
from seq2see.interchange.legacy import marian
from seq2see.interchange.reading import import_model
from seq2see.seq2seq import Seq2Seq
from test_interchange import LINES, trained_spm
from test_interchange_settings import SENTENCES

D, F, HEADS, LAYERS = 32, 48, 4, 2
#: Tokens that YAML writes in a way of its own.
ODD = ['"', "\\", "'", ":", "? a", "#", "- b", "a: 1", "\x85", "é", "'q'"]
SETTINGS = {
    "type": "transformer", "dim-emb": D, "transformer-dim-ffn": F, "transformer-heads": HEADS, "enc-depth": LAYERS,
    "dec-depth": LAYERS, "transformer-ffn-activation": "swish", "transformer-preprocess": '""',
    "transformer-postprocess": "dan", "transformer-postprocess-emb": "d", "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": "false", "transformer-guided-alignment-layer": "last", "transformer-ffn-depth": 2,
    "transformer-tied-layers": "\n  []", "version": "v1.9.0 a3b4 2020-01-01 00:00:00 +0000", "right-left": "false",
}  # fmt: skip
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n",
       "transformer-postprocess-emb": "nd"}  # fmt: skip


def positions(length: int) -> np.ndarray:
    """Compute what Marian computes (``sinusoidalPositionEmbeddings``), number by number."""
    table = np.zeros((length, D))
    for place in range(length):
        for i in range(D // 2):
            angle = place * math.exp(i * -math.log(10000) / (D / 2 - 1))
            table[place, i], table[place, D // 2 + i] = math.sin(angle), math.cos(angle)
    return table


def arrays_of(sizes: tuple[int, int], tied: bool, pre: bool, narrow: int = 0) -> dict[str, np.ndarray]:
    """Draw the weights of a model in Marian's names and order."""
    draw = np.random.default_rng(4)

    def drawn(*shape: int) -> np.ndarray:
        return (draw.normal(size=shape) * (0.3 if 1 in shape else shape[0] ** -0.5)).astype(np.float32)

    found = {"Wemb": drawn(sizes[0], D)} if tied else {}
    for half, size in zip(("encoder", "decoder"), sizes, strict=True):
        if not tied:
            found[f"{half}_Wemb"] = drawn(size, D)
        norms = [f"{half}_emb", f"{half}_top"] if pre else []
        for layer in range(1, LAYERS + 1):
            for part in ("self", "context") if half == "decoder" else ("self",):
                base = f"{half}_l{layer}_{part}"
                for letter in "qkvo":
                    found[f"{base}_W{letter}"], found[f"{base}_b{letter}"] = drawn(D, D), drawn(1, D)
                norms.append(f"{base}_Wo")
            base, wide = f"{half}_l{layer}_ffn", (narrow if half == "decoder" else 0) or F
            found |= {
                f"{base}_W1": drawn(D, wide),
                f"{base}_b1": drawn(1, wide),
                f"{base}_W2": drawn(wide, D),
                f"{base}_b2": drawn(1, D),
            }
            norms.append(f"{base}_ffn")
        for norm in norms:
            end = "_pre" if pre and not norm.endswith("_top") else ""
            found[f"{norm}_ln_scale{end}"], found[f"{norm}_ln_bias{end}"] = 1 + drawn(1, D), drawn(1, D)
    if not tied:
        found["decoder_ff_logit_out_W"] = drawn(D, sizes[1])
    return found | {"decoder_ff_logit_out_b": 3 * drawn(1, sizes[1])}


def write(
    place: Path, tied: bool = True, pre: bool = False, wider: bool = False, **settings: Any
) -> dict[str, np.ndarray]:
    """Write a folder as OPUS-MT publishes it; return its arrays."""
    place.mkdir()
    names = []
    for side in ("source", "target"):
        trained_spm(place / f"{side}.spm")
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(place / f"{side}.spm"))
        listed = ["</s>", "<unk>", ">>fra<<", *(pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size()))]
        names.append(list(dict.fromkeys([*listed, *ODD, *(["more"] if side == "target" and wider else [])])))
    files = ["a.spm32k.vocab.yml"] * 2 if tied else ["a.src.vocab.yml", "a.trg.vocab.yml"]
    for file, listed in zip(files, names, strict=True):
        # yaml-cpp writes short keys in double quotes, and long ones with a question mark.
        lines = [f"{json.dumps(name, ensure_ascii=False)}: {number}" for number, name in enumerate(listed)]
        lines[-1] = f"? {lines[-1].rpartition(':')[0]}\n: {len(lines) - 1}"
        lines = [line.replace("\x85", "\\x85") for line in lines]
        (place / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    sizes = len(names[0]), len(names[1])
    arrays = arrays_of(sizes, tied, pre, settings.get("transformer-decoder-dim-ffn", 0))
    said = {**SETTINGS, **(PRE if pre else {}), "dim-vocabs": f"\n  - {sizes[0]}\n  - {sizes[1]}", **settings}
    text = "".join(f"{name}: {value}\n" for name, value in said.items()).encode() + b"\0"
    np.savez(place / "a.best-perplexity.npz", **arrays, **{"special:model.yml": np.frombuffer(text, np.int8)})
    (place / "decoder.yml").write_text(
        "relative-paths: true\nmodels:\n  - a.best-perplexity.npz\nvocabs:\n"
        f"  - {files[0]}\n  - {files[1]}\nbeam-size: 6\nnormalize: 1\nword-penalty: 0\n"
    )
    return arrays


def both(place: Path, **settings: Any) -> tuple[dict[str, np.ndarray], Seq2Seq]:
    arrays = write(place / "theirs", **settings)
    import_model(str(place / "theirs"), place / "ours")
    return arrays, seq2see.load(place / "ours", engine="torch")


@pytest.mark.parametrize(
    "settings",
    sweep([{"tied": False, "wider": True, "transformer-decoder-dim-ffn": F // 3}, {}, {"tied": False, "pre": True}], 2),
    ids=str,
)
def test_answers_are_those_of_another_converter(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CTranslate2's own reads the same files; its positions are replaced by those that Marian has."""
    _, ours = both(tmp_path, **settings)
    monkeypatch.setattr(their_converter, "_make_sinusoidal_position_encodings", lambda dim, **_: positions(256))
    OpusMTConverter(str(tmp_path / "theirs")).convert(str(tmp_path / "ctranslate2"))
    translator = ctranslate2.Translator(str(tmp_path / "ctranslate2"))
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "theirs" / "source.spm"))
    sentences = [*SENTENCES, *LINES[:8], "Where is ☃ ?"]
    # What a SentencePiece model does not know is <unk>.
    cut = [[pieces.id_to_piece(number) for number in pieces.encode(sentence)] for sentence in sentences]
    # It keeps the padding's row away, which ours suppresses, and counts the end, which ours does too.
    found = translator.translate_batch(
        cut, beam_size=1, max_decoding_length=20, disable_unk=True, return_end_token=True
    )
    rules = ours.config.decoding.but(beam=1, length_ratio=0.0, length_offset=20)
    encoded = ours.tokenizers.source.encode_batch(sentences)
    names = marian.vocabulary(sorted((tmp_path / "theirs").glob("*vocab.yml"))[-1])
    answers = greedy(ours.transformer, encoded, Special.of(ours.tokenizers), rules)
    assert [[names[i] for i in answer.ids] for answer in answers] == [one.hypotheses[0] for one in found]
    ended = [[names[i] for i in answer.ids if names[i] != "</s>"] for answer in answers]
    start = ours.tokenizers.target.start
    for source, answer, value in zip(encoded, answers, translator.score_batch(cut, ended), strict=True):
        with torch.no_grad():
            logits = ours.transformer(torch.tensor([source]), torch.tensor([[start, *answer.ids[:-1]]]))[0]
        said = logits.log_softmax(-1)[range(len(answer.ids)), answer.ids].tolist()
        assert said == pytest.approx(value.log_probs[: len(said)], abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "copied"),
    sweep([({"tied": False, "wider": True}, ["source.spm", "target.spm"]), ({}, []), ({"pre": True}, [])], 2),
    ids=str,
)
def test_a_folder_of_another_converter_is_imported(settings: dict[str, Any], copied: list[str], tmp_path: Path) -> None:
    """What CTranslate2's own converter writes answers here as it does there, and starts with a vector of zeros."""
    write(tmp_path / "theirs", **settings)
    OpusMTConverter(str(tmp_path / "theirs")).convert(str(tmp_path / "ctranslate2"))
    for name in copied:
        shutil.copy(tmp_path / "theirs" / name, tmp_path / "ctranslate2" / name)
    _, notes = import_model(str(tmp_path / "ctranslate2"), tmp_path / "ours")
    assert any("no tokenizer" in note for note in notes) == (not copied)
    ours = seq2see.load(tmp_path / "ours", engine="torch")
    target = ours.tokenizers.target
    assert target.tokens([target.start]) == ["<pad>"]
    assert not ours.transformer.decoder.embedding.table.weight[target.start].any()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "theirs" / "source.spm"))
    numbers = [pieces.encode(sentence) for sentence in [*SENTENCES, *LINES[:8]]]
    cut = [[pieces.id_to_piece(number) for number in row] for row in numbers]  # what it does not know is <unk>
    translator = ctranslate2.Translator(str(tmp_path / "ctranslate2"))
    rules = ours.config.decoding.but(length_ratio=0.0, length_offset=20)
    texts = [*SENTENCES, *LINES[:8]] if copied else [" ".join(pieces) for pieces in cut]
    encoded = ours.tokenizers.source.encode_batch(texts)
    special = Special.of(ours.tokenizers)
    for beam in (1, 4):
        found = translator.translate_batch(
            cut, beam_size=beam, max_decoding_length=20, return_end_token=True, return_scores=True
        )
        answers = [best[0] for best in beam_search(ours.transformer, encoded, special, rules.but(beam=beam))]
        for answer, theirs in zip(answers, found, strict=True):
            # Two prefixes of a loop may be equally likely up to rounding. Then either answer is right.
            tied = beam > 1 and abs(answer.score - theirs.scores[0]) < 1e-5
            assert target.tokens(answer.ids) == theirs.hypotheses[0] or tied
    ended = [target.tokens([i for i in answer.ids if i != special.end]) for answer in answers]
    for answer, value in zip(answers, translator.score_batch(cut, ended), strict=True):
        assert answer.log_probabilities == pytest.approx(value.log_probs[: len(answer.ids)], abs=1e-4)


def test_awkward_tokens_have_their_numbers(tmp_path: Path) -> None:
    _, ours = both(tmp_path)
    names = marian.vocabulary(tmp_path / "theirs" / "a.spm32k.vocab.yml")
    assert names[-len(ODD) :] == ODD
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "theirs" / "source.spm"))
    known = {name: number for number, name in enumerate(names)}
    for line in LINES[:8]:
        expected = [known.get(piece, 1) for piece in pieces.encode(line, out_type=str)]
        assert ours.tokenizers.source.encode(line) == [*expected, 0]
    # <unk> and the padding are never answered, unless the decoder allows the first.
    theirs = tmp_path / "theirs"
    assert marian.read_marian(theirs).decoding.suppressed == (1, len(names))
    with (theirs / "decoder.yml").open("a") as file:
        file.write("allow-unk: true\n")
    assert marian.read_marian(theirs).decoding.suppressed == (len(names),)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"type": "s2s"}, "type = 's2s'"),
        ({"transformer-tied-layers": "\n  - 1\n  - 1"}, "transformer-tied-layers"),
        ({"transformer-postprocess": "da"}, "norms are"),
        ({"transformer-dim-ffn": 49}, "do not match the config"),
        ({"dec-depth": 1}, "does not have|lacks"),
    ],
)
def test_what_is_not_the_papers_transformer_is_refused(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    write(tmp_path / "theirs", **settings)
    with pytest.raises(UserError, match=sentence):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def with_arrays(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        arrays = dict(np.load(place / "a.best-perplexity.npz"))
        change(arrays)
        np.savez(place / "a.best-perplexity.npz", **arrays)

    return changed


def replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def changed(place: Path) -> None:
        text = (place / file).read_text(encoding="utf-8")
        assert old in text
        (place / file).write_text(text.replace(old, new), encoding="utf-8")

    return changed


QUERY, NAMES = "encoder_l1_self_Wq", "a.spm32k.vocab.yml"
SPOILED: dict[str, Callable[[Path], None]] = {
    "not a Marian model": with_arrays(lambda arrays: arrays.pop("special:model.yml")),
    "cannot be read": with_arrays(lambda arrays: arrays.update({QUERY: np.array([{}, {}], dtype=object)})),
    "does not have: 'encoder_l1_self_Wx'": with_arrays(lambda arrays: arrays.update(encoder_l1_self_Wx=arrays[QUERY])),
    "beam-size = 'x'": replaced("decoder.yml", "beam-size: 6", "beam-size: x"),
    "from 0 without gaps": replaced(NAMES, '"<unk>": 1\n', '"<unk>": 2\n'),
}


@pytest.mark.parametrize("sentence", SPOILED)
def test_spoiled_files_are_refused_in_a_sentence(sentence: str, tmp_path: Path) -> None:
    write(tmp_path / "theirs")
    SPOILED[sentence](tmp_path / "theirs")
    with pytest.raises(UserError, match=sentence):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_size_that_is_not_in_the_file_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path / "theirs")
    model = tmp_path / "theirs" / "a.best-perplexity.npz"
    data = model.read_bytes()
    shape = f"({D}, {D})".encode()
    model.write_bytes(data.replace(shape + b", }  ", b"(99999999,), }"[: len(shape) + 5], 1))
    with pytest.raises(UserError, match=r"cannot be read|does not match"):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
