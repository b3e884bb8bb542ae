"""What the GPU benchmarks share: one JSON object a line, and a check of their figures against the stored ones.

A benchmark makes a ``Report``, shows records with it, and ends with its status: 1 if a figure has fallen by a fifth
against ``gpu_figures.json``. ``--store`` writes the new figures there.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

STORED = Path(__file__).parent / "gpu_figures.json"
FALL = 0.2  # of a figure, from which on the check fails


def show(record: dict[str, Any]) -> None:
    """Print one JSON object in a line; a number that JSON cannot express, NaN or an infinity, becomes null."""
    print(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def fallen(figures: dict[str, float], stored: dict[str, dict[str, Any]], device: str) -> list[str]:
    """Say which figures are worse by a fifth than the stored ones of the same device.

    What is stored says whether ``more`` is better, as for tokens a second, or ``less``, as for microseconds.
    """
    said = []
    for name, value in figures.items():
        known = stored.get(name)
        if known is None or known["device"] != device:
            continue
        before = float(known["figure"])
        share = value / before if known["better"] == "more" else before / value if value else float("inf")
        if not share >= 1 - FALL:  # NaN is no figure that is good enough
            said.append(f"{name}: {value:,.4g}, but {before:,.4g} is stored ({known['measured']}).")
    return said


@dataclass
class Report:
    """The figures of one run."""

    device: str
    store: bool = False
    path: Path = STORED
    figures: dict[str, float] = field(default_factory=dict)
    better: dict[str, str] = field(default_factory=dict)

    def add(self, record: dict[str, Any], **figures: tuple[str, float, str]) -> None:
        """Show a record, and take note of some of its figures: a name, the value, and whether more or less is better."""
        show({**record, "device": self.device, "versions": versions()})
        for name, value, better in figures.values():
            assert better in ("more", "less")
            self.figures[name], self.better[name] = value, better

    def end(self) -> NoReturn:
        """Compare with the stored figures, or store these; exit with 1 if one has fallen."""
        stored: dict[str, dict[str, Any]] = (
            json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        )
        worse = fallen(self.figures, stored, self.device)
        if self.store:
            day = f"{datetime.now(UTC):%Y-%m-%d}"
            for name, value in self.figures.items():
                stored[name] = {"figure": value, "better": self.better[name], "device": self.device, "measured": day}
            self.path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        known = [name for name in self.figures if stored.get(name, {}).get("device") == self.device]
        show({"compared": len(known), "fallen by a fifth": worse})
        sys.exit(1 if worse and not self.store else 0)


def options(parser: argparse.ArgumentParser) -> None:
    """Add what all of them take."""
    parser.add_argument("--store", action="store_true", help="store the figures instead of comparing with them")


def gpu() -> str:
    """Name the GPU, or the CPU where there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def versions() -> dict[str, str]:
    """Return what was measured with."""
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "triton") if find_spec(name)}
