"""The options that several commands share, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from seq2see.answering.options import COMMAND, Options, declared, named_for, types_of

ModelName = Annotated[str, Option("--model", "-m", metavar="NAME|DIR", help="A model that ships, or a model folder.")]
Models = Annotated[
    list[str] | None,
    Option("--model", "-m", metavar="NAME|DIR", help="A shipped model or a model folder. May be given several times."),
]
Member = Annotated[
    int, Option("--member", min=0, metavar="N", help="Of an ensemble, which member to look into, from 0.")
]
Threads = Annotated[
    int | None,
    Option("--threads", metavar="N", min=1, help="Number of CPU threads. Default: the number of free cores."),
]
Device = Annotated[
    str,
    Option(
        "--device",
        help="auto, cpu, cuda (an NVIDIA GPU) or mps (Apple's). auto takes a GPU if it pays: for a large model and much "
        "text.",
    ),
]
Columns = Annotated[
    str | None,
    Option(
        "--columns",
        metavar="A,B",
        help="Source and target columns, by name or number; A+C,B adds the features in column C to the source.",
    ),
]
Years = Annotated[str | None, Option("--years", metavar="A-B", help="Only dates of these years; 1000-9999.")]
AsJson = Annotated[bool, Option("--json", help="One JSON object.")]
Host = Annotated[str, Option("--host", help="Address to listen on.")]
Port = Annotated[int, Option("--port", "-p", min=0, max=65535, help="Port to listen on; 0 means any free port.")]
Open = Annotated[bool, Option("--open", help="Open the page in a browser.")]

#: How the command gives the options whose type is another one in Python.
IN_COMMAND: dict[str, Any] = {"like": list[str] | None}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an answer, as they are declared; it gets them as keywords."""
    types, own = types_of(), signature(command, eval_str=True)
    added = []
    for name in named_for(COMMAND):
        told = declared(name)
        about = Option(
            *filter(None, [f"--{name.replace('_', '-')}", told.short]),
            help=" ".join(filter(None, [told.help, told.file])),
            min=told.least,
            max=told.most,
            metavar="FILE" if told.file else "|".join(told.choices) or told.sign,
        )
        kind = Path | None if told.file else IN_COMMAND.get(name, types[name])
        default = Options.__dataclass_fields__[name].default
        added.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, about], default=default))
    given = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    command.__signature__ = own.replace(parameters=[*given, *added])  # type: ignore[attr-defined]
    return command
