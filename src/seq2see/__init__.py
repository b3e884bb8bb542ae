"""seq2see: the Transformer of "Attention Is All You Need", to train, to use, and to see into.

The names below are all that is public. Each is imported on first use, so that ``import seq2see`` is instant.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

# The command `seq2see` begins here. Until `main` has set its handler, Ctrl-C ends the command silently. A
# program that imports this package keeps its own handling of Ctrl-C.
if sys.argv[:1] and (
    sys.argv[0].replace("\\", "/").endswith(("/seq2see", "/seq2see.exe", "/seq2see/__main__.py"))
    or sys.orig_argv[1:3] == ["-m", "seq2see"]
):
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2see.answering.answer import Answer as Answer
    from seq2see.answering.options import Options as Options
    from seq2see.by_example import fill as fill
    from seq2see.by_example import like as like
    from seq2see.config import Config as Config
    from seq2see.config import ModelConfig as ModelConfig
    from seq2see.config import TrainingConfig as TrainingConfig
    from seq2see.errors import RefusedInputs as RefusedInputs
    from seq2see.errors import UserError as UserError
    from seq2see.evaluation.evaluate import Evaluation as Evaluation
    from seq2see.inspection.trace import Trace as Trace
    from seq2see.inspection.trace import trace as trace
    from seq2see.model.transformer import Transformer as Transformer
    from seq2see.seq2seq import Seq2Seq as Seq2Seq
    from seq2see.seq2seq import load as load
    from seq2see.training.fitting import fit as fit

__version__ = "0.2.0"

_HOMES = {
    "Answer": "seq2see.answering.answer",
    "Config": "seq2see.config",
    "Evaluation": "seq2see.evaluation.evaluate",
    "ModelConfig": "seq2see.config",
    "Options": "seq2see.answering.options",
    "RefusedInputs": "seq2see.errors",
    "Seq2Seq": "seq2see.seq2seq",
    "Trace": "seq2see.inspection.trace",
    "TrainingConfig": "seq2see.config",
    "Transformer": "seq2see.model.transformer",
    "UserError": "seq2see.errors",
    "fill": "seq2see.by_example",
    "fit": "seq2see.training.fitting",
    "like": "seq2see.by_example",
    "load": "seq2see.seq2seq",
    "trace": "seq2see.inspection.trace",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seq2see' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from seq2see.errors import missing

        raise missing("torch", f"`{name}`") from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
