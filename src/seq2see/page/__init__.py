"""What a browser shows: a trace described as data, the page's own files, and both together as a single file."""

from pathlib import Path

STATIC = Path(__file__).parent / "static"
