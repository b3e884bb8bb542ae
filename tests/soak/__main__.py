"""`make soak`: all kinds of proof beside each other, a line of progress now and then, and a table at the end."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

#: The kinds, the longest first.
KINDS = ("load", "crashes", "inputs", "imports", "folders", "hostile", "disks", "data", "clients")


def main(arguments: list[str] | None = None) -> int:
    """Try all kinds; return 0 only if nothing was lost, wrong, leaked, hung or crashed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the full form, some 30 minutes on 2 cores")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other inputs, folders and moments")
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of them, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="kinds that run beside each other")
    asked = parser.parse_args(arguments)
    kinds = [kind for kind in KINDS if kind in asked.kinds.split(",")]
    os.environ["OMP_NUM_THREADS"] = "1"
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    from soak.child import warm

    warm()
    began, waiting, running = time.monotonic(), list(kinds), dict[int, str]()
    try:
        while waiting or running:
            while waiting and len(running) < asked.jobs:
                kind = waiting.pop(0)
                running[_start(kind, asked.scale, asked.seed, root)] = kind
            process, _ = os.wait()
            running.pop(process, None)
        records = [json.loads(path.read_text()) for kind in kinds if (path := root / f"{kind}.json").exists()]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return _report(records, kinds, f"scale {asked.scale:g}, seed {asked.seed}, {time.monotonic() - began:.0f} s")


def _start(kind: str, scale: float, seed: int, root: Path) -> int:
    """Begin a kind in a process of its own."""
    if process := os.fork():
        return process
    try:
        from soak.tally import Tally

        tally = Tally(kind, scale, seed)
        (root / kind).mkdir()
        import_module(f"soak.{kind}").run(tally, root / kind)
        tally.write(root / f"{kind}.json")
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def _report(records: list[dict], kinds: list[str], how: str) -> int:
    from soak.tally import table

    print(table(records))
    print(f"\n{how}, {os.cpu_count()} cores, load {os.getloadavg()[2]:.1f}.")
    for record in records:
        for line in (*record["remarks"], *record["told"]):
            print(f"- {line}")
    missing = [kind for kind in kinds if kind not in {record["kind"] for record in records}]
    if missing:
        print(f"{', '.join(missing)} did not come to an end.")
    faults = sum(sum(record["faults"].values()) for record in records)
    print(f"{faults} faults." if faults or missing else "Nothing was lost, wrong, leaked, hung or crashed.")
    return 1 if faults or missing else 0


if __name__ == "__main__":
    sys.exit(main())
