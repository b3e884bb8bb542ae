"""The command line. A command's module is imported when the command is called, for a fast start."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from inspect import cleandoc  # the class itself, since a module of ours has the name of its module
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from seq2see import __version__
from seq2see.cli.output import complain, hang_up
from seq2see.errors import UserError, missing

STOPPED = 130  # the status after Ctrl-C, also typer's

#: The commands, in the order of the help, and the module of this package that each is in.
HOMES = {
    "predict": "predict",
    "demo": "predict",
    "fill": "data",
    "evaluate": "evaluate",
    "score": "evaluate",
    "calibrate": "evaluate",
    "train": "train",
    "presets": "train",
    "runs": "runs",
    "doctor": "data",
    "tokenize": "data",
    "import": "interchange",
    "push": "interchange",
    "export": "interchange",
    "compress": "interchange",
    "trace": "inspect",
    "inspect": "inspect",
    "plot": "inspect",
    "serve": "serve",
    "see": "serve",
    "site": "serve",
    "watch": "serve",
    "learn": "serve",
}


def _version(asked: bool) -> None:
    if asked:
        print(f"seq2see {__version__}")
        raise typer.Exit


#: What `seq2see` alone prints.
DOORS = """Use a model       seq2see predict 1845-01-05
Train your own    seq2see train FILE      pairs of texts, with a tab between
Look inside       seq2see serve --open    or build one yourself: seq2see learn DIR

seq2see --help lists all commands, and seq2see demo shows some."""


def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        print(DOORS)


class _Commands(TyperGroup):
    """Behaviour that all commands share."""

    def _check_once(self, ctx: Any) -> None:
        """Refuse a second --model: the first would be ignored silently."""
        words = [*ctx._protected_args, *ctx.args]
        command = self.get_command(ctx, words[0]) if words else None
        takes_one = command is not None and any(
            "--model" in parameter.opts and not getattr(parameter, "multiple", False) for parameter in command.params
        )
        if takes_one and len(given := _models_in(words)) > 1:
            raise UserError(
                f"--model was given {len(given)} times ({', '.join(given)}), but one model was expected: "
                "run the command once for each, or compare two with `seq2see evaluate FILE --compare A B`."
            )

    def invoke(self, ctx: Any) -> Any:
        """Run a command. A closed pipe is not an error, and a negative number is not an option."""
        try:
            try:
                self._check_once(ctx)
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            hang_up()
        except UserError as error:
            error.args = (_with_options(str(error), ctx), *error.args[1:])
            raise
        except Exception as error:
            option = str(getattr(error, "option_name", ""))
            if re.match(r"-\d", option):
                raise UserError(
                    f"There is no option {option}. If it is a text, put -- before it: "
                    f"seq2see {ctx.invoked_subcommand} -- {option} …"
                ) from None
            raise


def _models_in(words: Sequence[str]) -> list[str]:
    """Return the models that a command line names."""
    words = list(words[: words.index("--")] if "--" in words else words)
    named = [following for word, following in pairwise(words) if word in ("--model", "-m")]
    return named + [word.partition("=")[2] for word in words if word.startswith("--model=")]


def _with_options(message: str, ctx: Any) -> str:
    """Name arguments as the command does: `vocabulary` becomes --vocabulary."""
    if ctx.invoked_subcommand is None:  # no command was called
        return message
    parameters = ctx.command.commands[ctx.invoked_subcommand].params
    options = {parameter.name: parameter.opts[0] for parameter in parameters if parameter.opts[0].startswith("-")}
    return re.sub(r"`(\w+)`", lambda found: options.get(found[1], found[0]), message)


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph, to wrap them at the terminal's width; one that begins with \\b stays."""
    parts = cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else part.replace("\n", " ") for part in parts)


def build(*modules: str) -> typer.Typer:
    """Build the command line."""
    app = typer.Typer(
        cls=_Commands,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        help="The Transformer of “Attention Is All You Need”: train it on pairs of texts, use it, see every number "
        "inside.",
    )
    app.callback()(_root)
    for module in modules:
        import_module(f"seq2see.cli.{module}").register(app)
    order = [*HOMES]
    app.registered_commands.sort(key=lambda one: order.index(one.name or str(getattr(one.callback, "__name__", ""))))
    for command in app.registered_commands:
        command.help = _paragraphs(command.help or getattr(command.callback, "__doc__", None) or "")
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return build(*dict.fromkeys(HOMES.values()))
    raise AttributeError(f"module 'seq2see.cli' has no attribute {name!r}")


def _open_closed() -> None:
    """Replace a closed standard stream by the null device, as in ``seq2see predict <&-``."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - to the end


def _speak_utf8() -> None:
    """Read and write UTF-8 with line feeds on every system: Windows has other defaults for pipes."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (os.linesep != "\n" or stream.encoding.lower() != "utf-8"):
            stream.reconfigure(encoding="utf-8", newline=None if stream is sys.stdin else "\n")


_interrupted: list[int] = []  # the signals of Ctrl-C so far


def main() -> None:
    """Run the command line; a UserError becomes one message and status 2, without a traceback."""
    unraisable = sys.unraisablehook
    try:
        try:
            signal.signal(signal.SIGINT, _interrupt)
            sys.unraisablehook = _not_lost
            _run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the exit gives no traceback
            sys.unraisablehook = unraisable
    except (KeyboardInterrupt, Exception) as error:
        # A native library may have made another error of Ctrl-C.
        if not isinstance(error, KeyboardInterrupt) and not _interrupted:
            raise
        complain("Stopped.")
        _leave()
    except SystemExit as ended:
        if ended.code != STOPPED:
            raise
        _leave()


def _leave() -> NoReturn:
    """Exit after Ctrl-C without unloading what is imported, which takes Python a second for a server."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(STOPPED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise an exception at Ctrl-C, but end at once while something is imported.

    A native library that is being loaded cannot handle an exception: it aborts, or reports a failed import.
    """
    _interrupted.append(number)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _not_lost(unraisable: sys.UnraisableHookArgs) -> None:
    """End at once where Python would ignore a Ctrl-C and print a traceback, as in a method ``__del__``."""
    if unraisable.exc_type is KeyboardInterrupt:
        _end_at_once()
    sys.__unraisablehook__(unraisable)


def _end_at_once() -> NoReturn:
    """Exit at once with a message. No file can be damaged: files are written whole or not at all."""
    os.write(2, b"seq2see: Stopped.\n")
    os._exit(STOPPED)


def _run() -> None:
    _open_closed()
    _speak_utf8()
    called = HOMES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        build(*([called] if called else dict.fromkeys(HOMES.values())))()
    except UserError as error:
        complain(str(error), last=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("seq2see"):
            raise
        complain(str(missing(error.name.partition(".")[0])), last=True)
        sys.exit(2)
    except RuntimeError as error:
        from seq2see.devices import full, is_full

        if not is_full(error):
            raise
        complain(str(full("this")).replace("`device`", "--device"), last=True)
        sys.exit(2)
    except OSError as error:
        complain(f"{error.filename or 'The output'}: {error.strerror or error}.", last=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
