"""The only door from the shell. Torch is imported when a command needs it, so that help answers at once."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from seq2see import __version__
from seq2see.cli import evaluate, export, inspect, plot, predict, train
from seq2see.cli.output import complain
from seq2see.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The Transformer of “Attention Is All You Need”: train it on pairs of texts, use it, see every number inside.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"seq2see {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


for group in (predict, evaluate, train, export, inspect, plot):
    group.register(app)


def main() -> None:
    """Run the command line; a user's error is one message and status 2, never a traceback."""
    try:
        app()
    except UserError as error:
        complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        complain("Stopped.")
        sys.exit(130)
    except BrokenPipeError:  # `seq2see … | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
