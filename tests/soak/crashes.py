"""Commands that are killed, or lose their power, at any moment, and then go on: the outcome is that without a crash.

A command is killed before each of its operations on files (Python's audit hooks tell of each), and at moments that are
drawn. In half of the crashes the power goes: then every file loses the bytes that were never sent to the disk (fsync).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak.child import Ended, Fork, command
from soak.tally import Tally

CRASHES = 1000
SHORT = 0.01  # the scale up to which every other command is left out
STARTS = 24  # of whole processes that get a signal early
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link"}
SETTINGS = {
    "training.checkpoint_every": 3, "training.evaluate_every": 6, "training.evaluate_on": 2,
    "training.batch_tokens": 120, "training.average": 2, "model.d_model": 16, "model.heads": 2, "model.d_ff": 32,
    "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dropout": 0.1,
}  # fmt: skip
TRAINING = ["--steps", "12", *(part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}"))]


@dataclass
class Scene:
    """A command in a folder, how it goes on after a crash, and what it must have made at its end."""

    name: str
    arguments: Callable[[Path], list[object]]
    results: tuple[str, ...]  # below the folder
    again: tuple[str, ...] = ("--resume",)
    before: Callable[[Path], None] = lambda folder: None  # makes the folder ready
    in_fork: Callable[[], None] = lambda: None
    retry: Callable[[Path], None] = lambda folder: None  # what a user does before giving the command again
    expected: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    operations: int = 0  # on files, in a run without a crash


def run(tally: Tally, root: Path) -> None:
    """Crash each command at each of its points, then at random ones."""
    wanted = os.environ.get("SOAK_SCENES", "").split(",")  # some of them, by their names
    scenes = [one for one in _scenes(root) if wanted == [""] or one.name in wanted]
    scenes = scenes[:: 1 if tally.scale > SHORT else 2]
    for scene in scenes:
        _whole(scene, tally, root)
    left, starts = tally.share(CRASHES, 9), tally.share(STARTS, 0)
    turns = [_points(scene, tally, root) for scene in scenes]
    while turns and left > 0:  # each point of each command once, in turns
        for turn in list(turns):
            if next(turn, None) is None:
                turns.remove(turn)
            elif (left := left - 1) <= 0:
                break
    while left > 0:
        left -= _drawn(tally.draw.choice(scenes), tally, root)
    for _ in range(starts):
        _early(tally)


# --- the commands ------------------------------------------------------------------------------------------------


def _scenes(root: Path) -> list[Scene]:
    from seq2see.storage import folder

    made = random.Random(3)
    rows = {f"{made.randrange(10 ** made.randint(1, 4))}" for _ in range(400)}
    pairs = root / "pairs.tsv"
    pairs.write_text("".join(f"{row}\t{row[::-1]}\n" for row in sorted(rows)))
    lines = root / "lines.txt"
    lines.write_text("".join(f"{1000 + 7 * n % 9000}-{n % 12 + 1:02}-{n % 28 + 1:02}\n" for n in range(1500)))
    parts = root / "given"
    parts.mkdir()
    for number in range(8):
        some = "".join(lines.read_text().splitlines(keepends=True)[150 * number :][:150]).encode()
        packed = number % 2 == 1
        name = f"{number}.txt{'.gz' if packed else ''}"
        (parts / name).write_bytes(gzip.compress(some) if packed else some)
    files = ("run/model.safetensors", "run/config.toml", "run/tokenizer.json")
    two = (*files[:2], "run/source-tokenizer.json", "run/target-tokenizer.json")
    on_pairs = [pairs, "--tokenizer", "characters", *TRAINING, "--set", "model.max_length=16"]

    def dates(place: Path) -> list[object]:
        return ["train", "dates", "--count", 200, "--years", "2020-2021", "--out", place / "run", *TRAINING]

    def tsv(place: Path) -> list[object]:
        return ["train", *on_pairs, "--out", place / "run"]

    def as_large() -> None:
        from seq2see.data import shards

        shards.LARGE = 1  # bytes from which a corpus goes to the disk

    def small_windows() -> None:
        from seq2see.answering import network

        network.WINDOW = 100  # lines that are answered together

    def copied(place: Path) -> None:
        shutil.copytree(folder.find("dates"), place / "model")

    def removed(place: Path) -> None:
        shutil.rmtree(place / "small", ignore_errors=True)

    return [
        Scene("TSV", tsv, two),
        Scene("dates", dates, files),
        Scene("predict", lambda place: ["predict", "--file", lines, "--out", place / "answers.txt"],
              ("answers.txt",), in_fork=small_windows),
        Scene("parts", lambda place: ["predict", "--file", parts / "*", "--out", place / "made"],
              tuple(f"made/{path.name}" for path in sorted(parts.iterdir())), again=()),
        Scene("shards", tsv, two, in_fork=as_large),
        Scene("compress", lambda place: ["compress", "--model", "dates", "--out", place / "small"],
              ("small/model.safetensors", "small/config.toml"), again=(), retry=removed),
        Scene("export", lambda place: ["export", "--model", place / "model"], ("model/ctranslate2/model.bin",),
              again=(), before=copied),
    ]  # fmt: skip


# --- a crash -----------------------------------------------------------------------------------------------------


def _watched(scene: Scene, place: Path, crash_at: int, synced: Path) -> None:
    """In a fork: note which files reach the disk, and die before operation ``crash_at`` on the folder, if not 0."""
    scene.in_fork()
    notes, sync, count, prefix = (os.open(synced, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.fsync, 0, str(place))

    def noted(handle: Any) -> None:
        sync(handle)
        found = os.fstat(handle)
        os.write(notes, f"{found.st_ino} {found.st_size}\n".encode())

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in EVENTS or (
            event == "open" and not (isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR))
        ):
            return
        names = [os.fspath(one) for one in given if isinstance(one, str | os.PathLike)]
        if any(str(name).startswith(prefix) for name in names):
            count += 1
            os.write(notes, b"operation\n")
            if count == crash_at:
                os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = noted  # type: ignore[assignment]
    sys.addaudithook(hook)


def _sizes(place: Path) -> dict[int, tuple[int, int]]:
    found = [path.stat() for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    return {one.st_ino: (one.st_size, one.st_mtime_ns) for one in found}


def _lose_power(place: Path, before: dict[int, tuple[int, int]], synced: Path) -> int:
    """Cut each file to what of it was on the disk; return how many files lost something."""
    sizes = {number: size for number, (size, _) in before.items()}
    for line in synced.read_text().split("\n"):
        if " " in line:
            number, size = map(int, line.split())
            sizes[number] = size
    lost = 0
    for path in place.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        found = path.stat()
        if (
            before.get(found.st_ino) != (found.st_size, found.st_mtime_ns)
            and sizes.get(found.st_ino, 0) < found.st_size
        ):
            os.truncate(path, sizes.get(found.st_ino, 0))
            lost += 1
    return lost


def _fresh(scene: Scene, root: Path) -> Path:
    place = root / scene.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    scene.before(place)
    return place


def _begin(scene: Scene, root: Path, crash_at: int = 0, again: bool = False) -> Fork:
    place, synced = root / scene.name, root / f"{scene.name}.synced"
    synced.write_text("")
    arguments = [*scene.arguments(place), *(scene.again if again else ())]
    return Fork(command(*arguments), root / f"{scene.name}.log", lambda: _watched(scene, place, crash_at, synced))


def _digests(scene: Scene, place: Path) -> dict[str, str]:
    found = {name: place / name for name in scene.results}
    made = {
        name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-" for name, path in found.items()
    }
    log = place / "run/log.jsonl"
    if log.exists():
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        made["log"] = json.dumps([{**row, "seconds": 0} for row in rows])
    return made


def _whole(scene: Scene, tally: Tally, root: Path) -> None:
    """Run the command without a crash. When it has ended, the power may go: what it made is on the disk."""
    place = _fresh(scene, root)
    before = _sizes(place)
    ended = _begin(scene, root).wait()
    scene.expected, scene.seconds = _digests(scene, place), ended.seconds
    scene.operations = (root / f"{scene.name}.synced").read_text().count("operation")
    if ended.fault is not None or ended.status != 0 or "-" in scene.expected.values():
        tally.fault("crashed", f"{scene.name} without a crash: {ended.status}, {ended.said[-300:]}")
    _lose_power(place, before, root / f"{scene.name}.synced")
    for name, digest in _digests(scene, place).items():
        if digest != scene.expected[name] and name != "log":
            tally.fault("lost", f"{scene.name}: {name} was not on the disk when the command had ended")


def _points(scene: Scene, tally: Tally, root: Path) -> Any:
    """Crash before each operation on a file, and go on; the power goes at every other one."""
    for crash_at in tally.draw.sample(range(1, scene.operations + 1), scene.operations):
        place = _fresh(scene, root)
        before = _sizes(place)
        ended = _begin(scene, root, crash_at).wait()
        if ended.status != -signal.SIGKILL:
            continue  # a thread writes checkpoints, so that another run may have an operation less
        power = crash_at % 2 == 0
        if power:
            _lose_power(place, before, root / f"{scene.name}.synced")
        yield _go_on(
            scene, tally, root, f"{'power lost' if power else 'killed'} before operation {crash_at}", not power
        )


def _drawn(scene: Scene, tally: Tally, root: Path) -> int:
    """Crash several times in a row, at operations and at moments that are drawn; return how many crashes it were."""
    place, draw, story, exact = _fresh(scene, root), tally.draw, [], True
    crashes = 0
    for number in range(draw.choice([1, 1, 2, 3])):
        before = _sizes(place)
        if number:
            scene.retry(place)
        at = draw.randint(1, 60) if draw.random() < 0.5 else 0
        fork = _begin(scene, root, at, again=number > 0)
        sort = signal.SIGKILL
        if not at:
            time.sleep(draw.uniform(0, scene.seconds))
            sort = draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            os.kill(fork.pid, sort)
        ended = fork.wait()
        stopped = ended.status in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130)
        if not stopped and (ended.fault is not None or ended.status not in (0, 1)):
            tally.fault("crashed", f"{scene.name} at a {sort.name}: {ended.fault or ended.said[-300:]}")
        if _is_done(scene, place):
            break
        crashes += 1
        power = draw.random() < 0.5
        if power:
            _lose_power(place, before, root / f"{scene.name}.synced")
            exact = False
        story.append(f"{sort.name}{f' before operation {at}' if at else ''}{', power lost' if power else ''}")
    if crashes:
        _go_on(scene, tally, root, "; ".join(story), exact, crashes)
    return crashes


def _is_done(scene: Scene, place: Path) -> bool:
    return all((place / name).is_file() for name in scene.results) and scene.name != "export"


def _go_on(scene: Scene, tally: Tally, root: Path, story: str, exact: bool, crashes: int = 1) -> bool:
    """Give the command again after a crash, and compare what it makes with what it makes without one."""
    place = root / scene.name
    if scene.name == "predict" and _is_done(scene, place):  # the crash came after the end
        ended = None
    else:
        scene.retry(place)
        ended = _begin(scene, root, again=True).wait()
    _judge(scene, tally, place, story, exact, ended)
    tally.add("crashes", f"{scene.name} went on", crashes)
    return True


def _judge(scene: Scene, tally: Tally, place: Path, story: str, exact: bool, ended: Ended | None) -> None:
    if ended is not None and (ended.fault is not None or ended.status != 0):
        tally.fault("lost", f"{scene.name} does not go on after {story}: {ended.status}, {ended.said[-300:]}")
        return
    found = _digests(scene, place)
    for name, digest in scene.expected.items():
        # Lines of the log are not sent to the disk one by one: the power may take some.
        if found.get(name) != digest and (exact or name != "log"):
            tally.fault("wrong", f"{scene.name} after {story}: {name} differs from that without a crash")
    if ended is not None:
        left = [path.name for path in place.rglob("*") if path.name[0] == "." or path.name == "checkpoints"]
        left = [name for name in left if name != ".lock"]
        if left:
            tally.fault("leaked", f"{scene.name} after {story}: {left} are left behind")


# --- Ctrl-C at the start -----------------------------------------------------------------------------------------


def _early(tally: Tally) -> None:
    """Send Ctrl-C to a process that has just begun: a word at most, and no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "seq2see", "predict", "1845-01-05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    time.sleep(tally.draw.uniform(0.02, 1.0))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    # Until Python has begun with our package, a traceback is its own, and so is the status.
    told = b"Traceback" in said
    if b"/seq2see/" in said if told else process.returncode not in (0, 130, -signal.SIGINT):
        tally.fault("crashed", f"Ctrl-C at the start: status {process.returncode}, {said[-300:]!r}")
    tally.add("crashes", "stopped at the start")
