"""Model folders of a stranger: each is refused in a sentence or answers, and does neither harm nor wait."""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak.child import Fork
from soak.tally import Tally

FOLDERS = 2000
TEXTS = ["1845-01-05", "2025-09-03", "1426-08-10", "2000-02-29"]
ORDER = "\x1b]0;owned\x07"
SECRET = "root:"  # is in /etc/passwd
LONGEST = 2000  # characters of a refusal
VALUES = [
    0, -1, 1, 2, 3, 7, 2**20, 10**9, 2**31, 2**40, 2**62, "1e400", "nan", "inf", "-0.0", '"16"', "[1]", "{a=1}", "true",
    "9" * 4000, "9" * 5000, '"\\u001b]0;owned\\u0007"', '""', "[" * 5000, "1979-05-27",
]  # fmt: skip
JSON = [
    None, True, 0, -1, 3, 2**31, 2**63, 1e308, "", "a" * 5000, ORDER, [], {}, [[]], {"": None}, "<eos>", ["a"] * 300,
    "NaN", {"Regex": "^(a+)+$"}, {"String": "a"},
]  # fmt: skip


# --- changes -----------------------------------------------------------------------------------------------------


def _setting(draw: random.Random, path: Path) -> str:
    """Another value in the config."""
    file = path / "config.toml"
    lines = file.read_text().splitlines()
    at = draw.choice([number for number, line in enumerate(lines) if " = " in line])
    name, value = lines[at].split(" = ")[0], draw.choice(VALUES)
    lines[at] = f"{name} = {value}"
    file.write_text("\n".join(lines))
    return f"config {name} = {str(value)[:20]}"


def _config_text(draw: random.Random, path: Path) -> str:
    """A config that is no config."""
    file = path / "config.toml"
    text, way = file.read_text(), draw.randrange(6)
    data = [
        text.encode("utf-16"),
        ("a = " + "[" * 100_000 + "]" * 100_000).encode(),
        (".".join("a" * 20_000) + " = 1\n").encode(),
        (text + "# x\n" * 2_000_000).encode(),
        (text + '"\\u001b]0;owned\\u0007" = 1\n').encode(),
        text.encode().replace(b"[model]", b"[model]\n[model]"),
    ][way]
    file.write_bytes(data)
    return f"config text {way}"


def _bytes(draw: random.Random, path: Path) -> str:
    """Some bytes of a file are changed, gone, or more."""
    file = draw.choice([one for one in sorted(path.rglob("*")) if one.is_file()])
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice([1, 1, 3, 20])):
        at = draw.randrange(len(data)) if data else 0
        way = draw.randrange(5)
        if way == 0 and data:
            data[at] ^= 1 << draw.randrange(8)
        elif way == 1:
            data[at : at + draw.randint(1, 50)] = b""
        elif way == 2:
            data[at:at] = draw.randbytes(draw.randint(1, 30))
        elif way == 3:
            data[at : at + 8] = draw.choice([b"\0" * 8, b"\xff" * 8, (2**31).to_bytes(8, "little")])
        elif draw.random() < 0.3:
            del data[at:]
    file.write_bytes(data)
    return f"bytes of {file.relative_to(path)}"


def _is_small(form: Any) -> bool:
    """Whether a tree of JSON has at most 10,000 values."""
    waiting, count = [form], 0
    while waiting and count + len(waiting) <= 10_000:
        one = waiting.pop()
        count += 1
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return not waiting


def _in_json(draw: random.Random, root: Any) -> None:
    """Change a value somewhere in a tree of JSON. What has become large does not grow again: it would fill the memory."""
    form = root
    while True:
        keys = list(form) if isinstance(form, dict) else list(range(len(form)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(form[key], dict | list) and form[key] and draw.random() < 0.8:
            form = form[key]
            continue
        if draw.random() < 0.3:
            del form[key]
        elif draw.random() < 0.2 and isinstance(form, list):
            form *= draw.choice([2, 50, 5000]) if _is_small(root) else 1
        else:
            form[key] = copy.deepcopy(draw.choice(JSON))
        return


def _json(draw: random.Random, path: Path) -> str:
    """Other values in a file of JSON."""
    file = draw.choice([one for one in sorted(path.rglob("*.json")) if one.is_file()])
    form = json.loads(file.read_text())
    for _ in range(draw.choice([1, 1, 2, 5])):
        _in_json(draw, form)
    file.write_text(draw.choice([json.dumps(form), json.dumps(form)[: draw.choice([-1, 100_000])]]))
    return f"JSON of {file.relative_to(path)}"


def _tokenizer(draw: random.Random, path: Path) -> str:
    """A tokenizer on which the library would hang, fall over, or fill the memory."""
    file = path / "tokenizer.json"
    form = json.loads(file.read_text())
    vocabulary = form["model"]["vocab"]
    grow = {"type": "Replace", "pattern": {"String": "1"}, "content": "1" * 1000}
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    charsmap = base64.b64encode(draw.randbytes(draw.choice([4, 12, 400]))).decode()
    changes: list[Callable[[], Any]] = [
        lambda: form.update(pre_tokenizer={**split, "pattern": {"Regex": draw.choice(["(1+)+$", "1*1*1*1*x", "((("])}}),
        lambda: form.update(normalizer={"type": "Sequence", "normalizers": [grow] * draw.choice([1, 4, 40])}),
        lambda: form.update(decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}, *[grow] * 4]}),
        lambda: form.update(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap}),
        lambda: form.update(model={"type": "BPE", "vocab": vocabulary, "merges": [["q", "zz"]]}),
        lambda: form.update(model={"type": "Unigram", "vocab": [], "unk_id": draw.choice([None, 9])}),
        lambda: form.update(
            model={"type": "Unigram", "vocab": [[c, draw.choice([0, -1e308, 1e400])] for c in vocabulary], "unk_id": 5}
        ),
        lambda: form.update(
            model={"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 0, "vocab": vocabulary,
                   "continuing_subword_prefix": "##"}
        ),
        lambda: form.update(truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 9}),
        lambda: form.update(
            padding={"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "x"}
        ),
        lambda: vocabulary.update({draw.choice(list(vocabulary)): draw.choice([-1, 4, 68, 99_999, 2**31, 2**33])}),
        lambda: vocabulary.update({f"{ORDER}\n<img>": vocabulary.pop("J")}),
        lambda: vocabulary.update({f"x{n}": 68 + n for n in range(draw.choice([1, 300_000]))}),
        lambda: form["post_processor"].update(single=form["post_processor"]["single"] * draw.choice([2, 10_000])),
        lambda: form["post_processor"]["special_tokens"]["<sos>"].update(ids=[10**6]),
    ]  # fmt: skip
    way = draw.randrange(len(changes))
    changes[way]()
    file.write_text(json.dumps(form))
    return f"tokenizer {way}"


def _weights(draw: random.Random, path: Path) -> str:
    """A head that says other things than the file holds, or numbers that are none."""
    file = path / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    names = [name for name in head if name != "__metadata__"]
    way, name = draw.randrange(8), draw.choice(names)
    if way == 0:
        head[name]["shape"] = draw.choice([[], [2**40], [-2, 8], [1, *head[name]["shape"]], head[name]["shape"][::-1]])
    elif way == 1:
        head[name]["dtype"] = draw.choice(["F64", "F16", "BF16", "I8", "I64", "BOOL", "F8_E4M3", "x"])
    elif way == 2:
        head[name]["data_offsets"] = draw.choice(
            [[0, 8], [0, 2**42], [-8, 0], [8, 0], head[draw.choice(names)]["data_offsets"]]
        )
    elif way == 3:
        head[draw.choice([ORDER, "../../etc/x", name + "/step"])] = head[name]
    elif way == 4:
        for _ in range(5):
            _in_json(draw, head)
    elif way == 5:
        values = [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\0\0\0\0"]
        body = bytearray(draw.choice(values) * (len(body) // 4))
    elif way == 6:
        body = body[: draw.randrange(len(body))]
    text = json.dumps(head).encode() if way != 7 else b"[" * 200_000
    size = len(text) if draw.random() < 0.9 else draw.choice([0, 2**40, 2**63, len(text) - 1])
    file.write_bytes(size.to_bytes(8, "little") + text + body)
    return f"weights {way}"


def _no_file(draw: random.Random, path: Path) -> str:
    """A link, a pipe, a folder, a hole or nothing in the place of a file."""
    file = draw.choice([one for one in sorted(path.rglob("*")) if one.is_file()])
    way = draw.choice(["/dev/zero", "/etc/passwd", "loop", "pipe", "folder", "hole", "nothing", "empty"])
    if way != "hole":
        file.unlink()
    if way.startswith("/"):
        file.symlink_to(way)
    elif way == "loop":
        file.symlink_to(file.name)
    elif way == "pipe":
        os.mkfifo(file)
    elif way == "folder":
        file.mkdir()
    elif way == "hole":
        os.truncate(file, 1 << draw.choice([32, 40]))
    elif way == "empty":
        file.touch()
    return f"{file.relative_to(path)}: {way}"


CHANGES = (_setting, _config_text, _bytes, _json, _tokenizer, _weights, _no_file)


# --- attempts ----------------------------------------------------------------------------------------------------


def run(tally: Tally, root: Path) -> None:
    """Change a folder, open it in a fork, and look at what it says."""
    from seq2see.storage import folder

    shipped, path = folder.find("dates"), root / "model"
    for number in range(tally.share(FOLDERS, len(CHANGES))):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(shipped, path)
        seed = tally.draw.random()
        draw = random.Random(seed)
        first = CHANGES[number % len(CHANGES)]
        story = first(draw, path)
        if draw.random() < 0.2:
            story += f" and {_no_file(draw, path)}"
        _open(tally, root, path, f"{story} (seed {seed})")


def _open(tally: Tally, root: Path, path: Path, story: str) -> None:
    ended = Fork(lambda: _answers(path), root / "log", patience=60).wait()
    if ended.fault is not None:
        sort, message = ended.fault
        tally.fault(sort, f"{story}: {message}")
        return
    sort, said = ended.returned
    if sort == "refused" and (len(said) > LONGEST or ORDER in said or SECRET in said):
        tally.fault("wrong", f"{story}: the refusal is {said[:300]!r}")
    tally.add("folders", sort)


def _answers(path: Path) -> list[Any]:
    """In a fork: open the folder with both engines, answer, and show its card."""
    import seq2see
    from seq2see.errors import UserError
    from seq2see.page.describe import describe_model

    found = []
    try:
        for engine in ("auto", "torch"):
            model = seq2see.load(path, engine=engine)
            found.append([answer.output for answer in model.answers(TEXTS)])
        shown = json.dumps(describe_model("model", model.config, model.card, model.path))
    except UserError as error:
        return ["refused", str(error)]
    assert not re.search(SECRET, shown), "the page shows a file of this machine"
    return ["answered", found]
