"""Models of strangers in other programs' forms: each is refused in a sentence, or imported and answers."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from soak.child import Fork
from soak.folders import JSON, LONGEST, ORDER, SECRET, _bytes, _in_json, _no_file, _structure
from soak.tally import Tally

IMPORTS = 1000
PATIENCE = 60  # seconds of an import and its answers
#: How often each base is drawn: models of Hugging Face's forms, then other forms of one of them.
FAMILIES = {"marian": 3, "m2m100": 2, "bart": 2, "mvp": 1, "plbart": 1, "blenderbot": 1, "fsmt": 2}
BASES = FAMILIES | {"json": 2, "pickle": 1, "fairseq": 2, "ctranslate2": 2, "argos": 2, "npz": 2}
LANGUAGES = {"m2m100": ("en", "fr"), "plbart": ("java", "en_XX")}  # for those that know several
NUMBERS = [-1, 0, 1, 3, 10**6, 10**12, 2**63, 1.5, 1e308, None, True, "7", [], [7], {"a": 1}, "é" * 3000, ORDER]
GENERATION = (
    "num_beams", "max_length", "max_new_tokens", "min_length", "eos_token_id", "bad_words_ids", "suppress_tokens",
    "no_repeat_ngram_size", "repetition_penalty", "length_penalty", "forced_bos_token_id", "pad_token_id",
    "decoder_start_token_id", "begin_suppress_tokens", "encoder_no_repeat_ngram_size", "early_stopping",
)  # fmt: skip


# --- what is imported --------------------------------------------------------------------------------------------


def make(place: Path) -> None:
    """In a fork: write small models as other programs write them."""
    import torch

    from seq2see.interchange.reading import import_model
    from seq2see.interchange.to_ctranslate2 import export
    from seq2see.seq2seq import load
    from test_interchange_marian import write
    from test_interchange_settings import MAKERS

    small = dict(encoder_layers=1, decoder_layers=1, max_position_embeddings=40)
    for name in FAMILIES:
        (place / name).mkdir()
        MAKERS[name](place / name, **small).save_pretrained(place / name)
    write(place / "npz")
    import_model(str(place / "marian"), place / "ours")
    ours = load(place / "ours", engine="torch")
    export(place / "ours", ours.transformer, ours.tokenizers, rules=ours.config.decoding)
    shutil.copytree(place / "ours/ctranslate2", place / "ctranslate2")
    (place / "json").mkdir()
    shutil.copytree(place / "marian", place / "json", dirs_exist_ok=True)
    for name in ("source.spm", "target.spm", "vocab.json"):
        (place / "json" / name).unlink()
    (place / "json/tokenizer.json").write_text(ours.tokenizers.source.to_json())
    (place / "argos").mkdir()
    with zipfile.ZipFile(place / "argos/package.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        for file in (place / "ctranslate2").iterdir():
            package.write(file, f"translate-en_fr/model/{file.name}")
        package.write(place / "marian/source.spm", "translate-en_fr/sentencepiece.model")
        package.writestr("translate-en_fr/metadata.json", json.dumps({"from_code": "en", "to_code": "fr"}))
    from safetensors.torch import load_file

    weights = {
        name.removeprefix("model."): value for name, value in load_file(place / "m2m100/model.safetensors").items()
    }
    (place / "pickle").mkdir()
    shutil.copytree(place / "marian", place / "pickle", dirs_exist_ok=True)
    torch.save(load_file(place / "marian/model.safetensors"), place / "pickle/pytorch_model.bin")
    (place / "pickle/model.safetensors").unlink()
    table = weights.pop("shared.weight")
    weights |= {f"{half}.embed_tokens.weight": table for half in ("encoder", "decoder")}
    torch.save({"args": Namespace(**_FAIRSEQ), "model": weights}, _made(place / "fairseq/checkpoint_best.pt"))
    for side in ("a", "b"):
        (place / f"fairseq/dict.{side}.txt").write_text("".join(f"w{n} 1\n" for n in range(len(table) - 4)))


_FAIRSEQ: dict[str, Any] = dict(
    encoder_layers=1, decoder_layers=1, encoder_embed_dim=32, decoder_embed_dim=32, encoder_ffn_embed_dim=48,
    decoder_ffn_embed_dim=48, encoder_attention_heads=4, decoder_attention_heads=4, encoder_normalize_before=True,
    decoder_normalize_before=True, encoder_learned_pos=False, decoder_learned_pos=False, activation_fn="relu",
    share_all_embeddings=True, share_decoder_input_output_embed=True, dropout=0.1, source_lang="a", target_lang="b",
    max_source_positions=40, max_target_positions=40,
)  # fmt: skip


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# --- changes -----------------------------------------------------------------------------------------------------


def _settings(draw: random.Random, path: Path) -> str:
    """Another value in the settings of the model, of generation, or of the tokenizer."""
    files = [one for one in sorted(path.glob("*.json")) if one.stat().st_size < 20_000 and one.name != "vocab.json"]
    if not files:
        return _bytes(draw, path)
    file = draw.choice(files)
    form = json.loads(file.read_text())
    keys = [*form, *(GENERATION if "generation" in file.name else ())] if isinstance(form, dict) else range(len(form))
    key = draw.choice(list(keys))
    form[key] = draw.choice([*NUMBERS, *JSON])
    file.write_text(json.dumps(form))
    return f"{file.name}: {key} = {str(form[key])[:20]!r}"


def _tree(draw: random.Random, path: Path) -> str:
    """Other values in a file of JSON."""
    files = [one for one in sorted(path.glob("*.json")) if one.is_file()]
    if not files:
        return _bytes(draw, path)
    file = draw.choice(files)
    form = json.loads(file.read_text())
    for _ in range(draw.choice([1, 1, 2, 5])):
        _in_json(draw, form)
    file.write_text(json.dumps(form)[: draw.choice([None, None, None, -1, 500])])
    return f"JSON of {file.name}"


def _pieces(draw: random.Random, path: Path) -> str:
    """A SentencePiece model that lies about its pieces, its scores or its map of characters."""
    files = sorted([*path.glob("*.spm"), *path.glob("*.model")])
    if not files:
        return _tree(draw, path)
    file = draw.choice(files)
    data = bytearray(file.read_bytes())
    way = draw.randrange(5)
    if way == 0:
        for _ in range(draw.choice([1, 5, 50])):
            data[draw.randrange(len(data))] = draw.randrange(256)
    elif way == 1:
        data += b"\x0a" + _length(70_004) + b"\x0a" + _length(70_000) + b"a" * 70_000
    elif way == 2:
        data += b"\x0a\x08\x0a\x01q\x15" + struct.pack("<f", draw.choice([float("nan"), float("inf"), -1e38]))
    elif way == 3:
        charsmap = (
            struct.pack("<I", draw.choice([4, 1024, 2**31])) + draw.randbytes(draw.choice([8, 1100, 5000])) + b"\0"
        )
        data += b"\x1a" + _length(len(charsmap) + 1 + len(_length(len(charsmap)))) + b"\x12" + _length(len(charsmap))
        data += charsmap
    else:
        data += b"\x20\x01" * draw.choice([10, 1_000_000])
    file.write_bytes(data)
    return f"pieces {way} of {file.name}"


def _length(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _pickled(draw: random.Random, path: Path) -> str:
    """Settings of fairseq, or tensors, of another kind than they should be; objects that run code."""
    import torch

    files = sorted([*path.glob("*.pt"), *path.glob("*.bin")])
    if not files or files[0].name == "model.bin":
        return _settings(draw, path)
    found = torch.load(files[0], weights_only=False)
    weights = found.get("model", found)
    way, name = draw.randrange(6), draw.choice(list(weights))
    if way == 0 and "args" in found:
        key = draw.choice(list(_FAIRSEQ))
        setattr(found["args"], key, draw.choice(NUMBERS))
        name = key
    elif way == 1:
        weights[name] = draw.choice([None, 3, "x", [1.0], torch.ones(2, dtype=torch.long), torch.tensor(float("nan"))])
    elif way == 2:
        weights[name] = torch.zeros(1).expand(2**20, 2 ** draw.choice([4, 20]))
    elif way == 3:
        weights[draw.choice([ORDER, "../x", "encoder.layers.9.fc1.weight"])] = weights.pop(name)
    elif way == 4:
        weights[name] = weights[name].to(draw.choice([torch.float64, torch.int8, torch.bool, torch.complex64]))
    else:
        found["x"] = draw.choice([Path("x"), os.system, Namespace(a=Namespace())])
    torch.save(found, files[0], _use_new_zipfile_serialization=draw.random() < 0.7)
    return f"pickle {way}, {str(name)[:40]!r}"


def _arrays(draw: random.Random, path: Path) -> str:
    """Other arrays, settings or vocabularies of Marian."""
    import numpy as np

    files = sorted(path.glob("*.npz"))
    if not files:
        return _head(draw, path)
    way = draw.randrange(4)
    if way == 0:
        file = draw.choice(sorted(path.glob("*.yml")))
        lines = file.read_text(encoding="utf-8").split("\n")
        at = draw.randrange(len(lines))
        lines[at] = draw.choice([*map(str, NUMBERS), "? a", ': "', '"\\ud800": 5', "- ../../x", "a: &b [*b]", lines[0]])
        file.write_text("\n".join(lines), encoding="utf-8")
        return f"line {at} of {file.name}"
    arrays = dict(np.load(files[0]))
    name = draw.choice(list(arrays))
    if way == 1:
        said = bytes(arrays["special:model.yml"])
        lines = said.decode().split("\n")
        at = draw.randrange(len(lines) - 1)
        lines[at] = f"{lines[at].partition(':')[0]}: {draw.choice(NUMBERS)}"
        arrays["special:model.yml"] = np.frombuffer("\n".join(lines).encode(), np.int8)
        name = lines[at][:40]
    elif way == 2:
        odd = [
            np.zeros(0),
            np.float64(3),
            np.array([{}], dtype=object),
            np.full((3, 3), np.nan, np.float32),
            np.arange(5),
        ]
        arrays[name] = draw.choice(odd)
    else:
        arrays[draw.choice([ORDER, "encoder_l9_self_Wq", "x" * 3000])] = arrays.pop(name)
    np.savez(files[0], **arrays)
    return f"arrays {way}, {name[:40]!r}"


def _head(draw: random.Random, path: Path) -> str:
    """Bytes of the head of a CTranslate2 file, or of safetensors."""
    if (path / "model.bin").is_file():
        data = bytearray((path / "model.bin").read_bytes())
        places = _structure(bytes(data))
        for _ in range(draw.choice([1, 1, 3, 8])):
            at = draw.choice(places)
            data[at] = draw.choice([data[at] ^ (1 << draw.randrange(8)), draw.randrange(256), 0, 255])
        (path / "model.bin").write_bytes(data)
        return "the head of model.bin"
    file = path / "model.safetensors"
    if not file.is_file():
        return _pickled(draw, path)
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice([1, 2, 5])):
        data[draw.randrange(2000)] = draw.choice(b'0123456789[]{}",:F\0\xff')
    file.write_bytes(data)
    return "the head of model.safetensors"


def _archive(draw: random.Random, path: Path) -> str:
    """An archive with other entries: bombs, doubles, paths out of it, damaged bytes."""
    file = path / "package.argosmodel"
    if not file.is_file():
        return _tree(draw, path)
    way = draw.randrange(7)
    with zipfile.ZipFile(file) as old:
        entries = {one.filename: old.read(one) for one in old.infolist()}
    names = list(entries)
    if way == 0:
        entries["x/model.bin"] = bytes(300 << 20)
    elif way == 1:
        entries[draw.choice(["../../../../tmp/escaped", "/etc/escaped", "a\0b", "x" * 5000])] = b"x"
    elif way == 2:
        del entries[draw.choice(names)]
    elif way == 3:
        name = draw.choice(names)
        entries[name] = bytes(draw.choices(entries[name] or b"x", k=min(len(entries[name]), 5000)))
    elif way == 4:
        entries |= {f"x/{number}": b"" for number in range(20_000)}
    elif way == 5:
        entries["translate-en_fr/metadata.json"] = json.dumps({"from_code": draw.choice(JSON)}).encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in entries.items():
            new.writestr(name, data)
    if way == 6:
        data = bytearray(file.read_bytes())
        for _ in range(draw.choice([1, 3, 20])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        file.write_bytes(data)
    return f"archive {way}"


CHANGES = (_settings, _settings, _tree, _bytes, _pieces, _pickled, _head, _arrays, _archive, _no_file)


# --- attempts ----------------------------------------------------------------------------------------------------


def run(tally: Tally, root: Path) -> None:
    """Change a model of another program, import it in a fork, and look at what it says and leaves."""
    bases = _made(root / "bases/x").parent
    ended = Fork(lambda: make(bases), root / "log", patience=600, memory=32 << 30).wait()
    if ended.fault is not None:
        tally.fault("crashed", f"the models to be changed were not made: {ended.said[-400:]}")
        return
    for number in range(tally.share(IMPORTS, len(CHANGES))):
        seed = tally.draw.random()
        draw = random.Random(seed)
        kind = draw.choices([*BASES], [*BASES.values()])[0]
        place = root / "place"
        shutil.rmtree(place, ignore_errors=True)
        path = Path(shutil.copytree(bases / kind, place / "theirs"))
        story = CHANGES[number % len(CHANGES)](draw, path)
        if draw.random() < 0.1 and any(one.is_file() for one in path.iterdir()):
            story += f" and {_no_file(draw, path)}"
        _import(tally, root, place, kind, f"{kind}, {story} (seed {seed})")


def _import(tally: Tally, root: Path, place: Path, kind: str, story: str) -> None:
    (place / "temporary").mkdir()

    def prepare() -> None:
        import tempfile

        tempfile.tempdir = str(place / "temporary")

    ended = Fork(lambda: imported(place, kind), root / "log", prepare, patience=PATIENCE).wait()
    if ended.fault is not None:
        tally.fault(ended.fault[0], f"{story}: {ended.fault[1]}")
        return
    sort, said = ended.returned
    if sort == "refused" and (len(said) > LONGEST or "\n" in said or ORDER in said or SECRET in said):
        tally.fault("wrong", f"{story}: the refusal is {said[:300]!r}")
    left = {one.name for one in place.iterdir()} - {"theirs", "temporary"} - ({"ours"} if sort == "answered" else set())
    left |= {one.name for one in (place / "temporary").iterdir()}
    if left:
        tally.fault("leaked", f"{story}: left behind are {sorted(left)}")
    tally.add("imports", sort)


def imported(place: Path, kind: str) -> list[Any]:
    """In a fork: import a folder, answer with it, and say what became of it."""
    from seq2see.errors import UserError
    from seq2see.interchange.reading import import_model
    from seq2see.seq2seq import load

    source = place / "theirs"
    if kind in ("fairseq", "argos"):
        found = sorted(one for one in source.iterdir() if one.suffix in (".pt", ".argosmodel"))
        source = found[0] if found else source
    try:
        import_model(str(source), place / "ours", LANGUAGES.get(kind, (None, None)))
    except UserError as error:
        return ["refused", str(error)]
    model = load(place / "ours", engine="torch")  # what was imported is a model like any other
    answers = model.answers(["The cat sat on the mat.", "w1 w2 é漢🙂"], max_length=8)
    return ["answered", [answer.output for answer in answers]]
