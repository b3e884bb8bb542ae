"""One interface, two engines: which of them answers, and where the CTranslate2 export of a model is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.decoding.hypothesis import PAPER, Hypothesis
from seq2see.errors import FolderError, UserError, suggest
from seq2see.files import cache_folder, digest, parsed, read_text
from seq2see.storage import folder

if TYPE_CHECKING:
    from seq2see.decoding.allowed import Automaton

EXACT = ("auto", "torch", "ctranslate2")  # these give the same answers
ENGINES = (*EXACT, "written", "int8")  # ``written``: exact, too, but slow, by what stands in ``model/``
FORMAT = folder.EXPORT  # an export's folder within a model folder
NOTE = "seq2see.json"  # the description of the export
LARGEST_NOTE = 2**16  # bytes
SMALL = 128  # a d_model below which one thread multiplies faster than two
MOST_KEPT, MOST_BYTES_KEPT = 20, 4 * 2**30  # exports in the user's cache
LARGE = 256  # a d_model from which the width of the numbers decides the speed


class Engine(Protocol):
    """Searches for answers; both engines give the same."""

    name: str

    def ids(
        self, sources: Sequence[Sequence[int]], rules: DecodingConfig = PAPER, allowed: Automaton | None = None
    ) -> list[list[int]]:
        """Return the ids of the best allowed answer to each source."""
        ...

    def search(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        n_best: int = 1,
        allowed: Automaton | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source, best first, with the log-probability of each token."""
        ...


def known(name: str) -> str:
    """Return the name of an engine if there is one of this name."""
    if name not in ENGINES:
        raise UserError(f"There is no engine {name!r}. {suggest(name, ENGINES)}")
    return name


#: Rules that CTranslate2 lacks, with the values that turn them off.
WITHOUT: dict[str, Any] = {"repetition_penalty": 1.0, "no_repeat_source": 0, "first_suppressed": ()}


def ready_export(path: Path, config: ModelConfig, quantization: str = "float32") -> Path | None:
    """Return the export of a model that ships, or the one in the user's cache, if there is one.

    CTranslate2 trusts what it reads, so no export in any other folder is read: one is made from the weights.
    """
    if find_spec(FORMAT) is None:
        return None
    shipped = path / FORMAT
    if quantization == "float32" and path.resolve().parent == folder.SHIPPED and shipped.is_dir():
        return shipped
    kept = kept_in(path, config, quantization) / FORMAT
    if not kept.is_dir() or not _is_private(kept.parent.parent) or not _is_whole(kept):
        return None
    with suppress(OSError):
        os.utime(kept.parent)  # the least recently used are removed first
    return kept


def kept_in(path: Path, config: ModelConfig, quantization: str = "float32") -> Path:
    """Return the place in the user's cache of an export of this kind."""
    name = digest_of(path, config)[:32]
    return cache_folder() / "exports" / (name if quantization == "float32" else f"{name}-{quantization}")


def _is_private(place: Path) -> bool:
    """Whether nobody but this user can write into a folder."""
    found = place.stat()
    return os.name == "nt" or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _is_whole(export: Path) -> bool:
    """Whether an export has all its bytes."""
    try:
        note = parsed(read_text(export / NOTE, LARGEST_NOTE), NOTE)
        return isinstance(note, dict) and note.get("sizes") == sizes_of(export)
    except (FolderError, OSError):
        return False


def sizes_of(export: Path) -> dict[str, int]:
    """Return the size of each file of an export except its note."""
    return {entry.name: entry.stat().st_size for entry in sorted(export.iterdir()) if entry.name != NOTE}


def make_room(kept: Path) -> None:
    """Remove the least recently used exports, except ``kept``, if there are too many."""
    with suppress(OSError):
        others = sorted(kept.parent.iterdir(), key=lambda place: place.stat().st_mtime, reverse=True)
        total = 0
        for number, place in enumerate(others):
            total += sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
            if place != kept and (number >= MOST_KEPT or total > MOST_BYTES_KEPT):
                shutil.rmtree(place, ignore_errors=True)


def digest_of(path: Path, config: ModelConfig) -> str:
    """Return a digest of a model: of its weights, tokenizers and shape."""
    # A newer setting does not count at its default, so that older exports stay valid.
    later = {"members": 1, "backward": 0, "scale_embeddings": True, "embedding_norm": False, "output_bias": False}
    shape = {
        name: value
        for name, value in asdict(config).items()
        if name != "dropout" and not (name in later and value == later[name])
    }
    whole = hashlib.sha256(json.dumps(shape, sort_keys=True).encode())
    for name in (folder.WEIGHTS, folder.TOKENIZER, folder.SOURCE_TOKENIZER, folder.TARGET_TOKENIZER):
        if (path / name).is_file():
            whole.update(digest(path / name))
    return whole.hexdigest()
