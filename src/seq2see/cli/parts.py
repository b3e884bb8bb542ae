"""``seq2see predict`` of many files: one file of answers for each, here or through the workers of a Ray cluster."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import json
import logging
import os
import socket
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

from seq2see.cli.answering import Asked, Job, Unsure, answer_all
from seq2see.cli.lines import characters_in, lines_of
from seq2see.cli.output import complain, progress
from seq2see.errors import UserError, counted, installed, printable
from seq2see.files import LARGEST_TEXT, LOCK, Lock, is_temporary, parsed, read_text, write_atomically, writing

NOTE = "seq2see.json"  # in the folder of answers: the inputs that they belong to
HALF = ".half"  # ending of an unfinished file of answers
SUFFIXES = (".txt", ".jsonl", ".ndjson")  # endings of a part's name that the name of its answers drops
#: Options that do not change an answer, so that a run may resume with other values.
FREE = ("model", "device", "engine", "threads")
RETRIES = 3  # of a file whose worker dies: the file itself may crash it
REACH = 10.0  # seconds within which an address must answer: Ray itself waits for minutes


@dataclass(frozen=True)
class Part:
    """A file of inputs, and the file of its answers."""

    path: Path
    out: Path

    @property
    def known_by(self) -> list[str | int]:
        """Identifies this version of the file: its path, size and time."""
        found = self.path.stat()
        return [str(self.path), found.st_size, int(found.st_mtime)]


@dataclass
class Report:
    """The result of a part."""

    part: Part
    answered: int = 0
    refused: int = 0
    said: list[str] = field(default_factory=list)
    error: str = ""  # reason if there is no file of answers


class Worker:
    """Answers one part after another with a model that it loads once."""

    def __init__(self, asked: Asked, characters: float = 0) -> None:
        self.asked, self.characters = asked, characters

    @cached_property
    def job(self) -> Job:
        """The loaded model with its request."""
        return self.asked.job(self.characters)

    def answer(self, part: Part) -> Report:
        """Answer a part. Its file of answers appears when it is complete."""
        report = Report(part)
        tell = report.said.append
        try:
            with writing(part.out, HALF) as file, _packed(file, part.out) as packed:
                out = io.TextIOWrapper(packed, "utf-8", newline="\n")
                unsure = Unsure(None, self.asked.options.min_confidence, tell)
                counts = answer_all(self.job, lines_of(part.path), "line", out, unsure, tell=tell)
                out.detach()
            report.answered, report.refused = counts
        except (UserError, OSError) as error:
            report.error = str(error)
        return report

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Answer a part that is a row of Ray Data."""
        report = self.answer(Part(Path(row["path"]), Path(row["out"])))
        return {**row, "counts": [report.answered, report.refused], "said": [report.error, *report.said]}


@contextmanager
def _packed(file: Any, out: Path) -> Iterator[Any]:
    """Compress the output if the file name ends in .gz; the same answers give the same bytes."""
    if out.suffix == ".gz":
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            yield packed
    else:
        buffered = io.BufferedWriter(file)
        yield buffered
        buffered.flush()


def answer_parts(asked: Asked, pattern: str, out: Path, ray: bool, address: str | None) -> None:
    """Answer each file that the pattern matches and that has no answers yet, here or in a Ray cluster."""
    parts = _parts(pattern, out, asked.as_json)
    if (Path(asked.model) / "config.toml").is_file():
        asked = replace(asked, model=str(Path(asked.model).resolve()))  # a worker may run elsewhere
    if ray:
        installed("ray", "--ray")
    # An error is reported here, not by each worker. This machine may have no GPU.
    amount = characters_in(*(part.path for part in parts if not part.out.exists()))
    local = Worker(replace(asked, device="cpu", engine="auto") if ray else asked, amount)
    lock = _lock(out, parts, _digest(asked, local.job))
    waiting = [part for part in parts if not part.out.exists()]
    if len(waiting) < len(parts):
        complain(f"Answered already: {len(parts) - len(waiting):,} of {counted(len(parts), 'part')}.")
    reports: Iterable[Report] = map(local.answer, waiting)
    try:
        _tell(clustered(asked, waiting, address) if ray and waiting else reports, len(waiting))
    except KeyboardInterrupt:
        complain("Finished parts are kept; the same command continues with the others.")
        raise
    finally:
        _sweep(out)
        del lock


def _tell(reports: Iterable[Report], count: int) -> None:
    """Show the results of the parts, and exit with the status of ``predict``."""
    answered, refused, failed = 0, 0, 0
    with progress("answering", "parts", lambda: count) as advance:
        for report in reports:
            for text in [*report.said, *([report.error] if report.error else [])]:
                complain(f"{report.part.path.name}: {text}")
            answered, refused = answered + report.answered, refused + report.refused
            failed += bool(report.error)
            advance(1)
    if failed:
        raise UserError(
            f"{failed:,} of {counted(count, 'part')} could not be answered (see above): the same command "
            "tries them again."
        )
    if refused:
        complain(f"{answered:,} answered, {refused:,} refused.")
        raise typer.Exit(1 if answered else 2)


# --- the files -----------------------------------------------------------------------------------------------------


def _parts(pattern: str, out: Path, as_json: bool) -> list[Part]:
    """Find the files, and name those of their answers."""
    names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - the pattern may begin with a root
    paths = [Path(name).resolve() for name in names if Path(name).is_file()]
    if not paths:
        raise UserError(f"No file matches {pattern!r}: a pattern such as 'parts/*.jsonl.gz' was expected.")
    named: dict[str, Path] = {}
    for path in paths:
        packed = ".gz" if path.suffix in (".gz", ".xz") else ""
        stem = path.stem if packed else path.name
        if Path(stem).suffix in SUFFIXES:
            stem = Path(stem).stem
        name = f"{stem}{'.jsonl' if as_json else '.txt'}{packed}"
        if name in named:
            raise UserError(
                f"{str(named[name])!r} and {str(path)!r} would both have their answers in {name}: give one "
                "of them another name."
            )
        if (out / name).resolve() == path:
            raise UserError(f"The answers would replace {str(path)!r}: name another folder for --out.")
        named[name] = path
    return [Part(path, out.resolve() / name) for name, path in named.items()]


def _digest(asked: Asked, job: Job) -> str:
    """Return a digest of the model and the options."""
    from seq2see.decoding.engines import digest_of

    assert job.model.path is not None
    options = {name: value for name, value in vars(asked).items() if name not in (*FREE, "options")}
    terms = None if asked.options.terms is None else asked.options.terms.terms
    options |= {**vars(asked.options), "glossary": terms}
    model = digest_of(job.model.path, job.model.config.model)
    return hashlib.sha256(json.dumps([model, options], sort_keys=True).encode()).hexdigest()


def _lock(out: Path, parts: list[Part], digest: str) -> Lock:
    """Prepare and lock the folder of answers, or raise a UserError."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out is {str(out)!r}, a file: a folder was expected, for the answers of many files.")
    others = [one.name for one in (out.iterdir() if out.is_dir() else ()) if not is_temporary(one.name)]
    if NOTE not in others and set(others) - {LOCK}:
        raise UserError(f"{str(out)!r} holds other files: name a new or an empty folder for --out.")
    lock = Lock(out)
    known: dict[str, list[str | int]] = {}
    if (out / NOTE).is_file():
        try:
            note = parsed(read_text(out / NOTE, LARGEST_TEXT), NOTE)
            known, found = dict(note["parts"]), note["answers"]
        except (UserError, ValueError, KeyError, TypeError):
            raise UserError(f"{str(out / NOTE)!r} was not written by a run: name another folder.") from None
        if found != digest:
            raise UserError(
                f"{str(out)!r} holds the answers of another model or of other options: give those, or "
                "name another folder."
            )
    for part in parts:
        if part.out.exists() and known.get(part.out.name) != part.known_by:
            raise UserError(
                f"{str(part.out)!r} holds the answers to another file than {str(part.path)!r} as it is now: remove "
                "it, or name another folder."
            )
        known[part.out.name] = part.known_by
    _sweep(out)
    write_atomically(out / NOTE, (json.dumps({"answers": digest, "parts": known}, indent=1) + "\n").encode())
    return lock


def _sweep(out: Path) -> None:
    """Remove the temporary files of killed workers."""
    for half in out.glob(f".*{HALF}"):
        half.unlink(missing_ok=True)


# --- a Ray cluster, through Ray Data: a row is a whole file, which one worker answers -------------------------------


def clustered(asked: Asked, parts: list[Part], address: str | None) -> Iterator[Report]:
    """Share the files out among the workers of a cluster, and report each when it is answered."""
    if address not in (None, "auto", "local"):
        _reach(str(address))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use to its makers
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        ray.init(address, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        yield from _reports(ray, replace(asked, threads=asked.threads or 1), parts)
    except (OSError, RuntimeError, ValueError) as error:
        told = f"The Ray cluster {address or 'of this machine'} cannot be used: {str(error).strip().splitlines()[0]}"
        raise UserError(f"{printable(told)} (if it asks for a token, set RAY_AUTH_MODE=token).") from None
    finally:
        ray.shutdown()


def _reports(ray: Any, asked: Asked, parts: list[Part]) -> Iterator[Report]:
    gpus, cores, there = int(asked.device.startswith("cuda")), asked.threads or 1, ray.cluster_resources()
    room = int(there.get("GPU", 0)) if gpus else int(there.get("CPU", 0) // cores)
    if not room:
        raise UserError(f"The Ray cluster has no {'GPU' if gpus else f'machine with {cores} cores'}: "
                        f"{'--device cpu' if gpus else '--threads 1'} may do.")  # fmt: skip
    settings = ray.data.DataContext.get_current()
    settings.max_errored_blocks, settings.enable_progress_bars = -1, False  # a lost file does not end it
    rows = [{"path": str(part.path), "out": str(part.out)} for part in parts]
    needs = {"num_cpus": cores, "num_gpus": gpus, "max_task_retries": RETRIES}
    with warnings.catch_warnings(action="ignore"):  # Ray 2.64 names the number of retries otherwise
        some = ray.data.from_items(rows, override_num_blocks=len(rows))
        done = some.map(Worker, fn_constructor_args=(asked,), concurrency=(1, min(room, len(rows))), **needs)
    left = {str(part.path): part for part in parts}
    for row in done.iter_rows():
        error, *said = map(str, row["said"])
        yield Report(left.pop(row["path"]), int(row["counts"][0]), int(row["counts"][1]), said, error)
    for part in left.values():
        yield Report(part, error=f"its worker died {RETRIES + 1} times")


def _reach(address: str) -> None:
    """Check that the address accepts connections."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--ray is {address!r}: an ADDRESS such as head-node:6379 was expected.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"No Ray cluster can be reached at {address} ({error}): `ray start --head` prints the address of one."
        ) from None
