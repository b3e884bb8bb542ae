"""Files that the workers of a Ray cluster answer, through Ray Data: a row is a whole file, which one worker answers."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from seq2see.cli.answering import Asked
from seq2see.cli.parts import Part, Report, Worker
from seq2see.errors import UserError, printable

RETRIES = 3  # of a file whose worker dies: the file itself may crash it
REACH = 10.0  # seconds within which an address must answer: Ray itself waits for minutes


class Rows(Worker):
    """A worker whose files and reports are rows of Ray Data."""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Answer a file."""
        report = self.answer(Part(Path(row["path"]), Path(row["out"])))
        return {**row, "counts": [report.answered, report.refused], "said": [report.error, *report.said]}


def answered(asked: Asked, parts: list[Part], address: str | None) -> Iterator[Report]:
    """Share the files out among the workers, and report each when it is answered."""
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
        done = some.map(Rows, fn_constructor_args=(asked,), concurrency=(1, min(room, len(rows))), **needs)
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
