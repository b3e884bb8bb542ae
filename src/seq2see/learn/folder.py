"""The student's folder: stubs that were never there before, his functions, and how far he has come."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2see.errors import UserError
from seq2see.files import write_atomically
from seq2see.learn.cases import PARTS, texts_of
from seq2see.learn.checks import Verdict, check, code_file, crash
from seq2see.learn.network import DATES, Built, Function, shipped, train

PROGRESS = "progress.json"


def write_stubs(folder: Path) -> list[str]:
    """Write the stubs that are missing, and return their names; a file that is there stays as it is."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: a folder was expected, which may be a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in PARTS if not (folder / f"{name}.py").exists()]
    for name in missing:
        write_atomically(folder / f"{name}.py", (texts_of(name)[0] + "    raise NotImplementedError\n").encode())
    return missing


def function_of(folder: Path, name: str) -> Function | Verdict:
    """Return the student's function, or what is wrong with its file."""
    path = folder / f"{name}.py"
    try:
        names: dict[str, Any] = {"__name__": name, "__file__": str(path)}
        exec(compile(path.read_bytes(), str(path), "exec"), names)
    except (Exception, SystemExit) as error:
        return Verdict(name, "wrong", crash(error, {str(path)}))
    if not callable(names.get(name)) or names[name].__name__ != name:
        return Verdict(name, "wrong", f"{path.name} has no function {name}: was it renamed?")
    return names[name]  # type: ignore[no-any-return]


def review(folder: Path) -> Iterator[tuple[Verdict, int]]:
    """Check each part, and count its tries; the counts are kept in the folder."""
    kept = _kept(folder)
    for name in PARTS:
        found = function_of(folder, name)
        verdict = found if isinstance(found, Verdict) else check(found)
        before = kept.get(name, {})
        version = zlib.crc32((folder / f"{name}.py").read_bytes())
        new = version != before.get("version") and verdict.state != "to do"
        kept[name] = {"state": verdict.state, "tries": before.get("tries", 0) + new, "version": version}
        yield verdict, kept[name]["tries"]
    write_atomically(folder / PROGRESS, json.dumps(kept, indent=1).encode())


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what was kept; a damaged file is like none, since it is made anew."""
    try:
        kept = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        return {name: {**part, "tries": int(part["tries"])} for name, part in kept.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def together(folder: Path, seconds: float | None = None) -> Iterator[str]:
    """Put the student's functions together: they answer with the shipped weights, and with ``seconds`` are trained."""
    parts: dict[str, Any] = {name: function_of(folder, name) for name in PARTS}
    try:
        model = Built(parts, shipped().transformer.state_dict())
        yield "Your functions, with the weights of the shipped model:"
        yield from (f"  {date} → {model.answer(date)}" for date in DATES)
        if seconds is None:
            yield f"\n`seq2see learn {folder} --train` trains them from nothing, in two minutes."
        else:
            yield f"And from nothing, in {seconds:.0f} seconds of one core, on 10,000 dates of the years 1000 to 2025:"
            yield from train(parts, seconds)
    except (Exception, SystemExit) as error:
        files = {code_file(part) for part in parts.values()}
        yield f"Each is right, but together they fail: {crash(error, files)}"
