"""``seq2see predict`` and ``seq2see demo``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from seq2see.answering import examples
from seq2see.answering.options import COMMAND, Options, declared, named_for, types_of
from seq2see.cli.answering import Asked, Unsure, Watch, Writer, answer_all, characters_in, count_lines, lines_of, skip
from seq2see.cli.output import complain, console
from seq2see.errors import UserError
from seq2see.files import given_text

#: Endings of files that are hardly lines of text, and their formats.
DOCUMENTS = {
    ".html": "html", ".htm": "html", ".md": "markdown", ".srt": "srt", ".po": "po", ".pot": "po", ".json": "json",
}  # fmt: skip
DOCUMENT_DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]

ModelName = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME|DIR", help="A model that ships, or a model folder.")
]

Member = Annotated[
    int, typer.Option("--member", min=0, metavar="N", help="Of an ensemble, which member to look into, from 0.")
]

Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="Number of CPU threads. Default: the number of free cores."),
]

Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="auto, cpu, cuda (an NVIDIA GPU) or mps (Apple's). auto takes a GPU if it pays: for a large "
        "model and much text.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(predict)
    app.command()(demo)


#: How the command gives the options whose type is another one in Python.
IN_COMMAND: dict[str, Any] = {"like": list[str] | None}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an answer, as they are declared; it gets them as keywords."""
    types, own = types_of(), signature(command, eval_str=True)
    added = []
    for name in named_for(COMMAND):
        told = declared(name)
        about = typer.Option(
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


@with_options
def predict(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT…", help="What to answer.")] = None,
    dates: Annotated[str | None, typer.Option("--dates", help="Dates separated by commas: a,b,c.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="One input per line (.jsonl: JSON; .gz, .xz), or with --format a document; - for standard "
            "input; "
            "'parts/*.jsonl.gz' for many files.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="A+B",
            help="Which columns of --file to read, by number, or by name in JSON: a word and its features.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the answers here; for many files, a folder."),
    ] = None,
    model: ModelName = "dates",
    withheld: Annotated[
        Path | None,
        typer.Option(
            "--withheld",
            metavar="FILE",
            help="Write the withheld answers here: number, confidence, input and answer, separated by tabs.",
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Show <sos>, <eos> and <pad>.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with probabilities.")] = False,
    align: Annotated[
        bool,
        typer.Option(
            "--align", help="Add the word alignment: SOURCE-TARGET numbers; with --json, words and positions."
        ),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="auto, torch, or ctranslate2 (of an exported model), which give the same answers; written, which gives "
            "them slowly, by the code that reads as the paper does; or int8, which is about twice as fast for large "
            "models, and whose answers may differ.",
        ),
    ] = "auto",
    device: Device = "auto",
    threads: Threads = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted --out after its last whole line.")
    ] = False,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="\\[ADDRESS] Distribute many files over the workers of a Ray cluster: there, or on this machine.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the name of the engine on standard error.")
    ] = False,
    **given: Any,
) -> None:
    """Answer texts: from the command line, a file, or standard input.

    Each input line gives one output line, in order; a line break or a tab within an answer becomes a space
    (in JSON it stays). A text that the model cannot read gives an empty line (an "error" in JSON), and
    standard error explains the first ten. Exit status: 0 if all were answered, 1 if some were refused, 2 if
    none could be. An interrupted run leaves FILE.part beside --out FILE.

    With --min-confidence a line is empty (in JSON it has an "error") if the confidence is lower, or if the
    input differs too much from the training inputs. This does not count as refused: the exit status stays 0.
    A model whose config has \\[decoding] sentences = true splits each text into sentences, and checks that
    the answer keeps numbers, addresses and placeholders; --whole turns this off. With --format, the input is
    one document of which only the words change.

    --align adds a tab and the word alignment from cross-attention in the Pharaoh form: 0-0 1-2 says that word
    0 of the answer comes from word 0 of the input, and 2 from 1. A word is a run of letters or digits; each
    other sign is a word, too.

    With --file 'parts/*.jsonl.gz' and --out DIR each file that matches gets a file of answers in the folder, and a file
    that has its answers is skipped, so that the same command continues after an interruption. --ray distributes the
    files over the workers of a Ray cluster, each with a core or a GPU (--threads N: N cores).

    [dim]seq2see predict 1845-01-05 2025-09-03[/dim]

    [dim]seq2see predict --file dates.txt --out words.txt[/dim]

    [dim]seq2see predict 1845-01-05 --align --json[/dim]

    [dim]seq2see predict --file 'parts/*.jsonl.gz' --out answers --ray head-node:6379[/dim]

    [dim]seq2see predict --model en-fr --format html --file page.html --out page.fr.html[/dim]
    """
    address = None
    if ray and texts is not None and file is not None:  # typer has no options with an optional value
        address, *more = texts
        if more:
            raise UserError(f"--ray takes one ADDRESS, but {address!r} and {more[0]!r} were given.")
        texts = None
    sources = [texts is not None, dates is not None, file is not None]
    if sum(sources) > 1:
        raise UserError("Texts were given in more than one way: use one of TEXT…, --dates and --file.")
    if not any(sources) and sys.stdin.isatty():
        raise UserError(
            "There is nothing to answer: give texts, --dates=a,b,c or --file F, or pipe lines to the command."
        )
    if resume and (out is None or texts is not None or dates is not None):
        raise UserError("--resume continues a file of answers: it needs --out, and --file or piped lines.")
    if out is not None and file is not None and out.exists() and file.exists() and out.samefile(file):
        raise UserError(f"--file and --out are both {str(out)!r}: the answers would replace the inputs.")
    if columns is not None and (texts is not None or dates is not None or given["format"] is not None):
        raise UserError("--columns chooses columns of lines: it needs --file or piped lines, without --format.")
    if withheld is not None and given["min_confidence"] is None:
        raise UserError("--withheld lists answers with a confidence below --min-confidence: give both.")
    from seq2see.documents.terms import Glossary

    if given["like"] and str(context.get_parameter_source("model")).endswith("DEFAULT"):
        model = examples.TASK
    for name, read in (("only", _list), ("glossary", Glossary.read), ("like", examples.read)):
        given[name] = read(given[name]) if given[name] else None
    options = Options(**given)
    form, clashes = options.format, {"--json": as_json, "--align": align, "--raw": raw, "--dates": dates}
    if form is not None and (clash := next((name for name, value in clashes.items() if value), None)):
        raise UserError(f"--format writes a document, for which {clash} has no meaning: leave one of them out.")
    asked = Asked(model, options, device, engine, threads, raw, as_json, align)
    if ray or (file is not None and not file.exists() and any(sign in str(file) for sign in "*?[")):
        if file is None or out is None:
            raise UserError("--ray distributes files of lines: it needs --file 'parts/*' and --out DIR.")
        single = {"--format": form, "--withheld": withheld, "--resume": resume, "--columns": columns}
        if clash := next((name for name, value in single.items() if value), ""):
            raise UserError(f"{clash} is for one file, but --file names many: leave {clash} out.")
        from seq2see.cli.parts import answer_parts

        through = None
        if ray:
            from seq2see.cli import ray_cluster

            through = partial(ray_cluster.answered, address=address)
        answer_parts(asked, str(file), out, through)
        return
    named = texts if texts is not None else [] if dates is None else [dates]
    job = asked.job(sum(map(len, named)) + characters_in(file))
    if form is not None:
        from seq2see.cli.documents import translate

        if verbose:
            complain(f"answered by {job.engine_name()}")
        translate(job, form, texts, file, out, resume)
        return
    if verbose:
        complain(f"answered by {job.engine_name(*[1] if texts else [])}")
    if file is not None and job.model.config.decoding.sentences and file.suffix.lower() in DOCUMENTS:
        kind = DOCUMENTS[file.suffix.lower()]
        complain(f"{file.name} is read as lines of text: with --format {kind} only its words change.")
    for text in texts or ():
        if "." in text and _names_a_file(text):
            complain(f"{text!r} is answered as a text: --file reads the file of that name.")
    unsure = Unsure(withheld, options.min_confidence)
    with Writer(out, resume) as writer, unsure:
        if texts is not None or dates is not None:
            inputs: Iterable[str] = texts if texts is not None else str(dates).split(",")
            answered, refused = answer_all(job, inputs, "input", writer, nullcontext(), unsure)
        else:
            lines = lines_of(file, () if columns is None else columns.split("+"))
            done = skip(job, lines, writer)
            watch = Watch("answering", "lines", lambda: count_lines(file))
            answered, refused = answer_all(job, lines, "line", writer, watch, unsure, done)
        if refused + answered == 0:
            raise UserError("The input is empty: there is nothing to answer.")
    if refused:
        complain(f"{answered:,} answered, {refused:,} refused.")
        raise typer.Exit(1 if answered else 2)


def _names_a_file(text: str) -> bool:
    """Whether there is a file of this name; a text may be too long for a name."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _list(path: Path) -> list[str]:
    """Read the allowed answers, one per line."""
    lines = given_text(path, "a text file with one allowed answer in each line").splitlines()
    return [line for line in lines if line.strip()]


def _at_least(probability: float | None) -> str:
    """Format a probability, rounded down to the digits that float32 can tell from 1."""
    assert probability is not None
    return f"{math.floor(probability * 1e5) / 1e5:.3%}"


def demo() -> None:
    """Show the model of dates at work: four dates, their probabilities, and what to try next."""
    from rich.table import Table

    from seq2see.seq2seq import load
    from seq2see.storage.folder import find, parameter_count

    model = load("dates")
    table = Table(title="ISO dates into words, letter by letter", title_justify="left", title_style="bold")
    table.add_column("you say")
    table.add_column("it answers", style="bold")
    table.add_column("sure", justify="right")
    table.add_column("least sure of", justify="center")
    for answer in model.answers(DOCUMENT_DATES):
        least = min(answer.tokens, key=lambda token: token.probability)
        table.add_row(
            answer.input,
            answer.output,
            _at_least(answer.probability),
            f"{least.token!r} {_at_least(least.probability)}",
        )
    console.print()
    console.print(table)
    shape = model.config.model
    console.print(
        f"A Transformer of {parameter_count(find('dates')):,} parameters: {shape.encoder_layers}+"
        f"{shape.decoder_layers} layers, {shape.heads} heads, d_model {shape.d_model}.\n"
    )
    console.print("[bold]Try next[/bold]")
    for command, what in (
        ("seq2see predict 1999-12-31", "any date of the years 1000-9999"),
        ("seq2see predict 1999-12-31 --json", "the same with probabilities"),
        ("seq2see trace 1999-12-31", "every number on the way"),
        ("seq2see serve --open", "the same on a page"),
        ('seq2see predict -m en-fr "Hello."', "one of the translators"),
        ("seq2see train dates --out my-dates", "train it yourself, in minutes"),
        ("seq2see --help", "all commands"),
    ):
        console.print(f"  {command:36} [dim]{what}[/dim]")
