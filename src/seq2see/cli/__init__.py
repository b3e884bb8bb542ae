"""The only door from the shell. A command's module is imported when it is called, so that answers come at once."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from seq2see import __version__
from seq2see.cli.output import complain
from seq2see.errors import UserError

#: The commands, in the order of the help, and the module of this package that each is in.
HOMES = {
    "predict": "predict",
    "demo": "predict",
    "evaluate": "evaluate",
    "score": "evaluate",
    "train": "train",
    "presets": "train",
    "doctor": "data",
    "tokenize": "data",
    "export": "export",
    "compress": "export",
    "bench": "bench",
    "trace": "inspect",
    "positions": "inspect",
    "similarity": "inspect",
    "plot": "plot",
    "serve": "serve",
    "see": "serve",
    "watch": "serve",
}


def _version(asked: bool) -> None:
    if asked:
        print(f"seq2see {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


def build(*modules: str) -> typer.Typer:
    """Make a command line of the commands in some modules."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        help="The Transformer of “Attention Is All You Need”: train it on pairs of texts, use it, see every number "
        "inside.",
    )
    app.callback()(_root)
    for module in modules:
        import_module(f"seq2see.cli.{module}").register(app)
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return build(*dict.fromkeys(HOMES.values()))
    raise AttributeError(f"module 'seq2see.cli' has no attribute {name!r}")


def main() -> None:
    """Run the command line; a user's error is one message and status 2, never a traceback."""
    called = HOMES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        build(*([called] if called else dict.fromkeys(HOMES.values())))()
    except UserError as error:
        complain(str(error), last=True)
        sys.exit(2)
    except KeyboardInterrupt:
        complain("Stopped.")
        sys.exit(130)
    except OSError as error:
        complain(f"{error.filename or 'The output'}: {error.strerror}.", last=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
