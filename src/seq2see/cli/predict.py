"""``seq2see predict`` and ``seq2see demo``."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from seq2see.answering import examples
from seq2see.answering.options import Options
from seq2see.cli.answering import COMPARED, Asked, Job, Unsure, answer_all, skip
from seq2see.cli.lines import Unfinished, characters_in, count_lines, lines_of
from seq2see.cli.options import Device, ModelName, Threads, with_options
from seq2see.cli.output import complain, console, progress
from seq2see.errors import UserError
from seq2see.files import given_text

#: Endings of files that are hardly lines of text, and their formats.
DOCUMENTS = {
    ".html": "html", ".htm": "html", ".md": "markdown", ".srt": "srt", ".po": "po", ".pot": "po", ".json": "json",
}  # fmt: skip
DOCUMENT_DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(predict)
    app.command()(demo)


@with_options
def predict(
    context: typer.Context,
    texts: Annotated[list[str] | None, Argument(metavar="TEXT…", help="What to answer.")] = None,
    dates: Annotated[str | None, Option("--dates", help="Dates separated by commas: a,b,c.")] = None,
    file: Annotated[Path | None, Option("--file", "-f", metavar="FILE",
                    help="One input per line (.jsonl: JSON; .gz, .xz), or with --format a document; - for standard "
                    "input; 'parts/*.jsonl.gz' for many files.")] = None,
    columns: Annotated[str | None, Option("--columns", metavar="A+B",
                       help="Which columns of --file to read, by number, or by name in JSON: a word and its "
                       "features.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE",
                   help="Write the answers here; for many files, a folder.")] = None,
    model: ModelName = "dates",
    withheld: Annotated[Path | None, Option("--withheld", metavar="FILE",
                        help="Write the withheld answers here: number, confidence, input and answer, separated by "
                        "tabs.")] = None,
    raw: Annotated[bool, Option("--raw", help="Show <sos>, <eos> and <pad>.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object per line, with probabilities.")] = False,
    align: Annotated[bool, Option("--align", help="Add the word alignment: SOURCE-TARGET numbers; with --json, words "
                     "and positions.")] = False,
    engine: Annotated[str, Option("--engine", metavar="NAME",
                      help="auto, torch, or ctranslate2 (of an exported model), which give the same answers; written, "
                      "which gives them slowly, by the code that reads as the paper does; or int8, which is about "
                      "twice as fast for large models, and whose answers may differ.")] = "auto",
    device: Device = "auto",
    threads: Threads = None,
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted --out after its last whole line.")] = False,
    ray: Annotated[bool, Option("--ray", help="\\[ADDRESS] Distribute many files over the workers of a Ray cluster: "
                   "there, or on this machine.")] = False,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Print the name of the engine on standard error.")] = False,
    **given: Any,
) -> None:  # fmt: skip
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
    _check_inputs(texts, dates, file, columns, out, resume, given.get("format"))
    if withheld is not None and given["min_confidence"] is None:
        raise UserError("--withheld lists answers with a confidence below --min-confidence: give both.")
    options = _read(given)
    if options.format is not None:
        as_lines = {"--json": as_json, "--align": align, "--raw": raw, "--dates": dates}
        _leave_out(as_lines, "--format writes a document, for which {} has no meaning")
    if options.like and str(context.get_parameter_source("model")).endswith("DEFAULT"):
        model = examples.TASK
    asked = Asked(model, options, device, engine, threads, raw, as_json, align)
    if ray or (file is not None and not file.exists() and any(sign in str(file) for sign in "*?[")):
        if file is None or out is None:
            raise UserError("--ray distributes files of lines: it needs --file 'parts/*' and --out DIR.")
        single = {"--format": options.format, "--withheld": withheld, "--resume": resume, "--columns": columns}
        _leave_out(single, "{} is for one file, but --file names many")
        from seq2see.cli.parts import answer_parts

        answer_parts(asked, str(file), out, ray, address)
        return
    named = texts if texts is not None else None if dates is None else dates.split(",")
    job = asked.job(sum(map(len, named or ())) + characters_in(file))
    if verbose:
        complain(f"answered by {job.engine_name(*[1] if texts and options.format is None else [])}")
    if options.format is not None:
        from seq2see.cli.documents import translate

        translate(job, options.format, texts, file, out, resume)
        return
    _remark(job, texts or (), file)
    with Unfinished(out, resume, kept=COMPARED) as writer:
        answered, refused = _answered(job, named, file, columns, writer, Unsure(withheld, options.min_confidence))
    if refused:
        complain(f"{answered:,} answered, {refused:,} refused.")
        raise typer.Exit(1 if answered else 2)


def _read(given: dict[str, Any]) -> Options:
    """Return the options of an answer; some of them are files on the command line."""
    from seq2see.documents.terms import Glossary

    for name, read in (("only", _list), ("glossary", Glossary.read), ("like", examples.read)):
        given[name] = read(given[name]) if given[name] else None
    return Options(**given)


def _list(path: Path) -> list[str]:
    """Read the allowed answers, one per line."""
    lines = given_text(path, "a text file with one allowed answer in each line").splitlines()
    return [line for line in lines if line.strip()]


def _check_inputs(
    texts: list[str] | None,
    dates: str | None,
    file: Path | None,
    columns: str | None,
    out: Path | None,
    resume: bool,
    form: str | None,
) -> None:
    """Refuse inputs that are not there, or are given twice."""
    sources = [texts is not None, dates is not None, file is not None]
    if sum(sources) > 1:
        raise UserError("Texts were given in more than one way: use one of TEXT…, --dates and --file.")
    if resume and (out is None or texts is not None or dates is not None):
        raise UserError("--resume continues a file of answers: it needs --out, and --file or piped lines.")
    if out is not None and file is not None and out.exists() and file.exists() and out.samefile(file):
        raise UserError(f"--file and --out are both {str(out)!r}: the answers would replace the inputs.")
    if columns is not None and (texts is not None or dates is not None or form is not None):
        raise UserError("--columns chooses columns of lines: it needs --file or piped lines, without --format.")


def _leave_out(given: dict[str, Any], why: str) -> None:
    """Refuse the first option that is given although it has no meaning here."""
    if clash := next((name for name, value in given.items() if value), ""):
        raise UserError(f"{why.format(clash)}: leave {clash} out.")


def _remark(job: Job, texts: list[str] | tuple[()], file: Path | None) -> None:
    """Tell a user who gives a document as lines, or the name of a file as a text."""
    if file is not None and job.model.config.decoding.sentences and file.suffix.lower() in DOCUMENTS:
        kind = DOCUMENTS[file.suffix.lower()]
        complain(f"{file.name} is read as lines of text: with --format {kind} only its words change.")
    for text in texts:
        try:
            is_file = "." in text and Path(text).is_file()
        except (OSError, ValueError):  # a text may be too long for a name
            is_file = False
        if is_file:
            complain(f"{text!r} is answered as a text: --file reads the file of that name.")


def _answered(
    job: Job, named: list[str] | None, file: Path | None, columns: str | None, writer: Unfinished, unsure: Unsure
) -> tuple[int, int]:
    """Answer the texts that are named, or the lines of a file, and return how many were answered and refused."""
    if named is not None:
        answered, refused = answer_all(job, named, "input", writer, unsure)
    else:
        lines = lines_of(file, () if columns is None else columns.split("+"))
        done = skip(job, lines, writer)
        if typed := file is None and sys.stdin.isatty():
            complain("Type a text and press Enter; Ctrl-D ends.")
        bar = None if typed else progress("answering", "lines", lambda: count_lines(file), sum(done))
        answered, refused = answer_all(job, lines, "line", writer, unsure, bar, done, each_at_once=typed)
    if refused + answered == 0:
        raise UserError("The input is empty: there is nothing to answer.")
    return answered, refused


def demo() -> None:
    """Show the model of dates at work: four dates, their probabilities, and what to try next."""
    from rich.table import Table

    from seq2see.seq2seq import load
    from seq2see.storage.folder import find, parameter_count

    def at_least(probability: float | None) -> str:
        """Format a probability, rounded down to the digits that float32 can tell from 1."""
        return f"{math.floor((probability or 0.0) * 1e5) / 1e5:.3%}"

    model = load("dates")
    table = Table(title="ISO dates into words, letter by letter", title_justify="left", title_style="bold")
    table.add_column("you say")
    table.add_column("it answers", style="bold")
    table.add_column("sure", justify="right")
    table.add_column("least sure of", justify="center")
    for answer in model.answers(DOCUMENT_DATES):
        least = min(answer.tokens, key=lambda token: token.probability)
        sure = f"{least.token!r} {at_least(least.probability)}"
        table.add_row(answer.input, answer.output, at_least(answer.probability), sure)
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
