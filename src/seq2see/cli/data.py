"""``seq2see doctor``, ``tokenize`` and ``fill``: files of pairs, texts and tables before a model gets them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from seq2see.answering.examples import LEAST, TASK
from seq2see.cli.options import AsJson, Columns, ModelName
from seq2see.cli.output import Refusals, aside, complain, console, say
from seq2see.errors import UserError, counted, installed, shown
from seq2see.files import given_file, write_atomically

if TYPE_CHECKING:
    from seq2see.by_example import Filled
    from seq2see.data.doctor import Finding
    from seq2see.data.pairs import Corpus
    from seq2see.data.recipe import Recipe


DATASET = "hf:"  # prefix of a Hugging Face dataset's name
KINDS = (".csv", ".tsv", ".parquet")  # tables that are written


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
    app.command()(tokenize)
    app.command()(fill)


def run_name(paths: list[Path]) -> str:
    """Name a run after its data: train.en.gz gives train, hf:org/books:en-fr gives books-en-fr."""
    name = paths[0].name
    if str(paths[0]).startswith(DATASET):
        return "-".join(part for part in name.removeprefix(DATASET).split(":") if part)
    return name.split(".")[0]


def are_dates(data: list[str] | None) -> bool:
    """Whether the data is "dates", to be generated; anything else must be files."""
    if data is None or data == ["dates"]:
        return True
    if len(data) == 1 and "," not in data[0] and not Path(data[0]).exists() and not data[0].startswith(DATASET):
        raise UserError(f"There is no file {data[0]!r}: 'dates' was expected, or a file of pairs.")
    return False


def read(*texts: str, strict: bool = False, columns: str | None = None, or_two: bool = False) -> Corpus:
    """Read the pairs of files as they are named on the command line."""
    from seq2see.data.formats import checked
    from seq2see.data.pairs import paths_of, read_pairs

    asked = None if columns is None else checked(columns)
    return read_pairs(paths_of(*texts), strict, columns=asked, or_two=or_two)


def doctor(
    data: Annotated[list[str], Argument(metavar="FILE…", help="TSV, CSV, JSON, Parquet or Excel, or two parallel "
                    "files, .gz and .xz too; or hf:NAME:CONFIG, a Hugging Face dataset.")],
    validation: Annotated[str | None, Option("--validation", metavar="FILE",
                          help="Pairs to watch the training by; A,B for parallel files.")] = None,
    test: Annotated[str | None, Option("--test", metavar="FILE",
                    help="Pairs for the final score; A,B for parallel files.")] = None,
    columns: Columns = None,
    preset: Annotated[str | None, Option("--preset", "-p",
                      help="Estimate the training with this preset; chosen by the data if not given.")] = None,
    why: Annotated[bool, Option("--why", help="Tell the rule and the evidence of each setting.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Check pairs before training: bad rows, duplicates, leaks, lengths, what fits, how long it takes.

    Texts are read in Unicode NFC with white space folded. Parts that are not given are split off, as `train` does.
    Exit status: 0 if nothing is wrong, 1 if there are faults, 2 if the files cannot be read.

    [dim]seq2see doctor mine.tsv[/dim]

    [dim]seq2see doctor train.en train.fr --test test.en,test.fr[/dim]
    """
    from seq2see.data.doctor import examine
    from seq2see.data.formats import checked
    from seq2see.data.pairs import paths_of
    from seq2see.data.shards import is_large, survey

    with aside.status("Looking …"):
        watched, scored = (
            None if part is None else read(part, columns=columns, or_two=True) for part in (validation, test)
        )
        paths, found = paths_of(*data), None
        if is_large(paths):
            found = survey(
                paths,
                validation=None if watched is None else watched.pairs,
                test=None if scored is None else scored.pairs,
                columns=None if columns is None else checked(columns),
            )
        corpus = read(*data, columns=columns) if found is None else found.corpus
        report = examine(corpus, scored, found, preset, watched)
    recipe = report.recipe if why else None
    if as_json:
        findings = [{"fault": f.fault, "text": f.text, "advice": f.advice} for f in report.findings]
        told = {"facts": dict(report.facts), "findings": findings}
        if recipe is not None:
            told["why"] = [reason.told() for reason in recipe.reasons]
        print(json.dumps(told, ensure_ascii=False))
    else:
        _tell_findings(report.faults, "fault")  # what must be mended comes first
        for name, fact in report.facts:
            say(f"{name:16} {fact}")
        _tell_findings([one for one in report.findings if not one.fault], "remark")
        if not report.faults:
            console.print("No fault was found.")
        if recipe is not None:
            _tell_reasons(recipe)
    if report.faults:
        raise typer.Exit(1)


def _tell_findings(findings: Sequence[Finding], word: str) -> None:
    for finding in findings:
        say(f"{word}: {finding.text}.")
        if finding.advice:
            say(f"    → {finding.advice}")


def _tell_reasons(recipe: Recipe) -> None:
    """Print the settings by their rules, with the evidence of each rule."""
    for rule, reasons in groupby(recipe.reasons, lambda reason: reason.rule):
        some = list(reasons)
        far = "" if some[0].measured else "; not measured for so many tokens"
        say(f"{rule.name} ({rule.evidence}{far})")
        say("    " + ", ".join(f"{reason.setting} = {reason.value}" for reason in some))


def tokenize(
    text: Annotated[str, Argument(metavar="TEXT", help="The text to tokenize.")],
    model: Annotated[str | None, Option("--model", "-m", metavar="NAME|DIR",
                     help="Tokenize as this model does, and show ids and positions.")] = None,
    data: Annotated[str | None, Option("--data", metavar="FILE",
                    help="Pairs that the tokenizers learn from, instead of a sample.")] = None,
    columns: Columns = None,
    target: Annotated[bool, Option("--target", help="Tokenize as text of the target side.")] = False,
    vocabulary: Annotated[int, Option("--vocabulary", metavar="N", min=512,
                          help="Sub-words to learn, bytes included.")] = 512,
) -> None:  # fmt: skip
    """Split a text into characters, words, BPE, WordPiece and unigram tokens, and count them.

    With --data, the tokenizer that `train` would choose for this side of these pairs comes first.

    [dim]seq2see tokenize "the Transformer is an innovative NLP model!"[/dim]

    [dim]seq2see tokenize 1845-01-05 --model dates[/dim]
    """
    if not text:
        raise UserError("The text is empty: give a text to tokenize.")
    if model is not None and data is not None:
        raise UserError("--model and --data were both given: a model has its tokenizer already. Use one.")
    if model is not None:
        _tokenize_as(model, text, target)
        return
    from seq2see.tokenizers.compare import SAMPLE, compare, cut

    cuts, pairs = [], [] if data is None else read(data, columns=columns).pairs
    if pairs:
        from seq2see.data.cuts import cuts_of, tokenizers_of

        suited = cuts_of(pairs)
        chosen = tokenizers_of(suited, pairs)[target]
        text = chosen.untabbed(text)
        cuts = [replace(cut(chosen, text), kind=f"{suited.kinds[target]}, as chosen")]
    texts = [side for pair in pairs for side in pair] or SAMPLE
    rows = []
    for one in [*cuts, *compare(text, texts, vocabulary)]:
        count, pieces = len(one.tokens), "|".join(_visible(token) for token in one.tokens)
        rows.append([one.kind, str(count), str(one.characters), f"{one.characters / max(1, count):.1f}", pieces])
    _print_table(["tokenizer", "tokens", "characters", "a token", "cut into"], rows)


def _tokenize_as(model: str, text: str, target: bool) -> None:
    """Show the tokens of a text as a model reads it, with their ids and positions."""
    from seq2see.storage.folder import find, read_tokenizers

    both = read_tokenizers(find(model))
    tokenizer = both.target if target else both.source
    text = tokenizer.untabbed(text)
    tokenizer.check(text)
    ids = tokenizer.encode(text)
    _print_table(
        ["token", "id", "characters"],
        [
            [_visible(token), str(number), f"{first}-{last}" if last > first else ""]
            for token, number, (first, last) in zip(tokenizer.tokens(ids), ids, tokenizer.offsets(text), strict=True)
        ],
    )
    count = len(ids) - len(tokenizer.before) - len(tokenizer.after)
    console.print(f"{tokenizer.kind}: {counted(count, 'token')} for {counted(len(text), 'character')}.")


def _print_table(names: list[str], rows: list[list[str]]) -> None:
    """Print a table whose first column is text, and whose others are numbers but for "cut into"."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        is_text = name in (names[0], "cut into")
        table.add_column(name, justify="left" if is_text else "right", overflow="fold" if is_text else "ellipsis")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _visible(token: str) -> str:
    """Return a token with visible spaces and escaped markup."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("[", r"\[")


# --- tables --------------------------------------------------------------------------------------------------------


def fill(
    table: Annotated[Path, Argument(metavar="TABLE", help="A CSV, Excel or Parquet file, or one with tabs.")],
    out: Annotated[Path, Option("--out", "-o", metavar="FILE",
                   help="Write the filled table here: .csv, .tsv or .parquet.")],
    column: Annotated[str | None, Option("--column", metavar="NAME",
                      help="Fill this column. Default: the only one with some empty cells.")] = None,
    using: Annotated[list[str] | None, Option("--using", metavar="NAME",
                     help="Read this column. Default: all others.")] = None,
    min_confidence: Annotated[float, Option("--min-confidence", metavar="P", min=0, max=1,
                              help="Leave a cell empty below this.")] = LEAST,
    model: ModelName = TASK,
) -> None:  # fmt: skip
    """Fill a column of a table as its filled cells show.

    A cell whose answer is not sure stays empty, and standard error lists it and says which one to fill in by hand: after
    that answer others may follow. TABLE itself never changes.

    [dim]seq2see fill people.csv --column short --using name --out filled.csv[/dim]
    """
    from seq2see.by_example import fill as filled

    if out.suffix.lower() not in KINDS:
        raise UserError(f"--out is {str(out)!r}: a file was expected that ends in {', '.join(KINDS)}.")
    if out.exists():
        raise UserError(f"{out} exists already: name a new file, since no table is overwritten.")
    names, numbers, rows = _table(table)
    columns = {name: [row[n] if n < len(row) else "" for row in rows] for n, name in enumerate(names)}
    found = filled(columns, column, using or (), model=model, min_confidence=min_confidence, rows=numbers)
    _write(out, table, found)
    empty = Refusals("row")
    for one in found.unsure:
        perhaps = f", perhaps {shown(one.answer.withheld)}" if one.answer.withheld else f": {one.answer.error}"
        empty.add(one.row, f"{shown(one.input)} stays empty{perhaps}")
    empty.close("--min-confidence decides", "left empty")
    if found.question:
        complain(found.question)
    count = found.filled + len(found.unsure)
    say(f"{out}: {found.filled:,} of {count:,} empty cells of {shown(found.column)} are filled.")


def _table(table: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """Return the names of a table's columns, the numbers of its rows and their cells."""
    from seq2see.data.formats import read_table

    given = read_table(table)
    rows = [(number, cells) for number, cells in given.rows if cells != "is empty" and any(cells)]
    if bad := next(((number, cells) for number, cells in rows if isinstance(cells, str)), None):
        raise UserError(f"Row {bad[0]:,} of {table.name} {bad[1]}.")
    names = given.names or [str(name) for name in (rows.pop(0)[1] if rows else [])]
    if not rows:
        raise UserError(f"{table.name} has no rows below its names of columns: some were expected.")
    if wrong := next((number for number, cells in rows if len(cells) > len(names)), 0):
        raise UserError(f"Row {wrong:,} of {table.name} has more cells than there are columns ({len(names)}).")
    if len(set(names)) < len(names):
        raise UserError(f"Two columns of {table.name} have one name: give each its own.")
    return names, [number for number, _ in rows], [[*cells] for _, cells in rows]


def _write(out: Path, table: Path, found: Filled) -> None:
    kind, columns = out.suffix.lower(), found.table
    if kind == ".parquet":
        installed("polars", out.name)
        import polars

        frame = polars.DataFrame(columns)
        if table.suffix.lower() == kind:  # other columns keep their types; it was parsed within bounds before
            given_file(table, "a Parquet file")
            frame = polars.read_parquet(table).with_columns(frame[found.column])
        data = io.BytesIO()
        frame.write_parquet(data)
        write_atomically(out, data.getvalue())
        return
    text = io.StringIO(newline="")
    writer: Any = csv.writer(text, delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in zip(*columns.values(), strict=True)])
    write_atomically(out, text.getvalue().encode())
