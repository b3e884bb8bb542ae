"""One interface, two engines: which of them answers, and whether a folder's CTranslate2 export is of its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol, get_args

from seq2see import folder
from seq2see.config import ModelConfig
from seq2see.decoding.hypothesis import Hypothesis
from seq2see.errors import FolderError, UserError, suggest

EngineName = Literal["auto", "torch", "ctranslate2"]
FORMAT, NOTE = "ctranslate2", "seq2see.json"  # an export's folder within a model folder, and what it says of itself

#: The settings that shape a converted model; a change in another one leaves it valid.
SHAPE = ("d_model", "heads", "norm", "activation", "positions", "max_length", "share_embeddings", "share_output")


class Engine(Protocol):
    """Searches for answers; both engines give the same."""

    name: str

    def ids(self, sources: Sequence[Sequence[int]], beam: int = 1) -> list[list[int]]:
        """Return the best answer's ids to each source."""
        ...

    def search(
        self, sources: Sequence[Sequence[int]], beam: int = 1, n_best: int = 1
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source, best first, with the log-probability of each token."""
        ...


def digest_of(path: Path, config: ModelConfig) -> str:
    """Return what tells a model apart from another: its weights, tokenizers and shape."""
    digest = hashlib.sha256(json.dumps([getattr(config, name) for name in SHAPE]).encode())
    for name in (folder.WEIGHTS, folder.TOKENIZER, folder.SOURCE_TOKENIZER, folder.TARGET_TOKENIZER):
        if (path / name).is_file():
            with (path / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
