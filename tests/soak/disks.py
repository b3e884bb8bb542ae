"""Disks that are full at any byte: a command says so in a sentence, and leaves nothing of what it was to write."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from soak.child import run as run_command
from soak.tally import Tally

ATTEMPTS = 150
LEAST = 4096  # bytes, so that a message can be written
KEPT = {".lock", "seq2see.json"}  # in a folder of answers to many files, so that the same command goes on
#: The commands, and what each writes below its folder.
COMMANDS = {
    "export": ("export", "--model", "dates", "--to", "hf", "--out", "made"),
    "import": ("import", "hf", "--out", "made"),
    "compress": ("compress", "--model", "dates", "--out", "made"),
    "predict": ("predict", "--file", "lines.txt", "--out", "made.txt"),
    "document": ("predict", "--format", "text", "--file", "lines.txt", "--out", "made.txt"),
    "parts": ("predict", "--file", "lines.*", "--out", "made"),
    "see": ("see", "1845-01-05", "--html", "made.html"),
    "site": ("site", "made", "--model", "dates"),
}


def run(tally: Tally, root: Path) -> None:
    """Run commands with files that cannot grow beyond a size that is drawn."""
    whole = run_command("export", "--model", "dates", "--to", "hf", "--out", root / "hf", log=root / "log")
    assert whole.status == 0, whole.said
    sizes = _sizes(root, tally)
    for _ in range(tally.share(ATTEMPTS, 5)):
        name = tally.draw.choice(list(sizes))
        most = tally.draw.choice([LEAST, tally.draw.randrange(LEAST, sizes[name])])
        place = _prepared(root)
        before = {path.name for path in place.iterdir()}

        def small(place: Path = place, most: int = most) -> None:
            _enter(place)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        ended = run_command(*COMMANDS[name], log=root / "pipe", prepare=small)
        left = sorted({path.name for path in place.iterdir()} - before - {"made.txt.part"})
        if name == "parts" and {path.name for path in (place / "made").glob("*")} <= KEPT:
            left = []
        told = f"{name} with files of {most:,} bytes: status {ended.status}, {ended.said[-300:]!r}"
        if ended.fault is not None:
            tally.fault(*ended.fault)
        elif ended.status == 0 and not left:
            tally.fault("lost", told)
        elif ended.status != 0 and left:
            tally.fault("leaked", f"{told}; left: {left}")
        elif ended.status != 0 and "None." in ended.said:
            tally.fault("wrong", told)
        tally.add("full disks", "written" if ended.status == 0 else "refused")


def _enter(place: Path) -> None:
    os.chdir(place)


def _prepared(root: Path) -> Path:
    """Return a folder with what the commands read."""
    place = root / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "hf").symlink_to(root / "hf")
    (place / "lines.txt").write_text("1845-01-05\n" * 3000)
    return place


def _sizes(root: Path, tally: Tally) -> dict[str, int]:
    """Return the size of the largest file that each command writes on an empty disk."""
    sizes = {}
    for name, arguments in COMMANDS.items():
        place = _prepared(root)
        ended = run_command(*arguments, log=root / "log", prepare=lambda place=place: _enter(place))
        made = list(place.rglob("made*"))
        made += [inside for path in made if path.is_dir() for inside in path.rglob("*")]
        sizes[name] = max((path.stat().st_size for path in made if path.is_file()), default=0)
        if ended.status != 0 or not sizes[name]:
            tally.fault("lost", f"{name} on an empty disk: status {ended.status}, {ended.said[-300:]}")
            del sizes[name]
    return sizes
