"""Make the pictures of pictures.md again, by the commands in it: ``python docs/make_pictures.py``."""

from __future__ import annotations

import io
import os
import re
import shlex
from pathlib import Path

from PIL import Image

from seq2see.cli import app
from seq2see.storage.folder import write_atomically

HERE = Path(__file__).parent
LARGEST = 100_000  # bytes; beyond, 256 colours must do


def commands() -> list[list[str]]:
    """Return the arguments of each ``seq2see plot …`` in pictures.md."""
    text = (HERE / "pictures.md").read_text(encoding="utf-8")
    return [shlex.split(line)[1:] for line in re.findall(r"^seq2see plot .*$", text, re.MULTILINE)]


def shrink(path: Path) -> None:
    """Reduce a large picture to 256 colours, so that the repository stays small."""
    if path.stat().st_size > LARGEST:
        data = io.BytesIO()
        Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(data, "png", optimize=True)
        write_atomically(path, data.getvalue())


def main() -> None:
    """Run the commands in this folder, where pictures.md looks for the pictures."""
    os.chdir(HERE)
    for arguments in commands():
        app(arguments, standalone_mode=False)
        shrink(Path(arguments[-1]))


if __name__ == "__main__":
    main()
