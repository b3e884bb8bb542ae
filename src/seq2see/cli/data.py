"""``seq2see doctor`` and ``seq2see tokenize``."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.output import aside, console, say
from seq2see.errors import UserError, counted

if TYPE_CHECKING:
    from seq2see.data.pairs import Corpus
    from seq2see.data.recipe import Recipe


DATASET = "hf:"  # prefix of a Hugging Face dataset's name


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
    app.command()(tokenize)


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


Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Source and target columns, by name or number; A+C,B adds the features in column C to the source.",
    ),
]


def read(*texts: str, strict: bool = False, columns: str | None = None, or_two: bool = False) -> Corpus:
    """Read the pairs of files as they are named on the command line."""
    from seq2see.data.formats import checked
    from seq2see.data.pairs import paths_of, read_pairs

    asked = None if columns is None else checked(columns)
    return read_pairs(paths_of(*texts), strict, columns=asked, or_two=or_two)


def doctor(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="TSV, CSV, JSON, Parquet or Excel, or two parallel files, .gz and .xz too; or hf:NAME:CONFIG, a Hugging "
            "Face dataset.",
        ),
    ],
    validation: Annotated[
        str | None,
        typer.Option("--validation", metavar="FILE", help="Pairs to watch the training by; A,B for parallel files."),
    ] = None,
    test: Annotated[
        str | None, typer.Option("--test", metavar="FILE", help="Pairs for the final score; A,B for parallel files.")
    ] = None,
    columns: Columns = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", "-p", help="Estimate the training with this preset; chosen by the data if not given."),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Tell the rule and the evidence of each setting.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
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
    if as_json:
        findings = [{"fault": f.fault, "text": f.text, "advice": f.advice} for f in report.findings]
        told = {"facts": dict(report.facts), "findings": findings}
        if why and report.recipe is not None:
            told["why"] = [reason.told() for reason in report.recipe.reasons]
        print(json.dumps(told, ensure_ascii=False))
    else:
        for name, fact in report.facts:
            say(f"{name:16} {fact}")
        for finding in sorted(report.findings, key=lambda finding: not finding.fault):
            word = "fault" if finding.fault else "remark"
            say(f"{word}: {finding.text}.")
            if finding.advice:
                say(f"    → {finding.advice}")
        if not report.faults:
            console.print("No fault was found.")
        if why and report.recipe is not None:
            _tell_reasons(report.recipe)
    if report.faults:
        raise typer.Exit(1)


def _tell_reasons(recipe: Recipe) -> None:
    """Print the settings by their rules, with the evidence of each rule."""
    for rule, reasons in groupby(recipe.reasons, lambda reason: reason.rule):
        some = list(reasons)
        far = "" if some[0].measured else "; not measured for so many tokens"
        say(f"{rule.name} ({rule.evidence}{far})")
        say("    " + ", ".join(f"{reason.setting} = {reason.value}" for reason in some))


def tokenize(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to tokenize.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME|DIR", help="Tokenize as this model does, and show ids and positions."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="Pairs that the tokenizers learn from, instead of a sample."),
    ] = None,
    columns: Columns = None,
    target: Annotated[bool, typer.Option("--target", help="Tokenize as text of the target side.")] = False,
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", metavar="N", min=512, help="Sub-words to learn, bytes included.")
    ] = 512,
) -> None:
    """Split a text into characters, words, BPE, WordPiece and unigram tokens, and count them.

    With --data, the tokenizer that `train` would choose for this side of these pairs comes first.

    [dim]seq2see tokenize "the Transformer is an innovative NLP model!"[/dim]

    [dim]seq2see tokenize 1845-01-05 --model dates[/dim]
    """
    from rich.table import Table

    if not text:
        raise UserError("The text is empty: give a text to tokenize.")
    if model is not None and data is not None:
        raise UserError("--model and --data were both given: a model has its tokenizer already. Use one.")
    table = Table(box=None, pad_edge=False)
    if model is not None:
        from seq2see.storage.folder import find, read_tokenizers

        both = read_tokenizers(find(model))
        tokenizer = both.target if target else both.source
        text = tokenizer.untabbed(text)
        tokenizer.check(text)
        ids = tokenizer.encode(text)
        for name in ("token", "id", "characters"):
            table.add_column(name, justify="left" if name == "token" else "right")
        for token, number, (first, last) in zip(tokenizer.tokens(ids), ids, tokenizer.offsets(text), strict=True):
            table.add_row(_visible(token), str(number), f"{first}-{last}" if last > first else "")
        console.print(table)
        count = len(ids) - len(tokenizer.before) - len(tokenizer.after)
        console.print(f"{tokenizer.kind}: {counted(count, 'token')} for {counted(len(text), 'character')}.")
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
    for name in ("tokenizer", "tokens", "characters", "a token"):
        table.add_column(name, justify="left" if name == "tokenizer" else "right")
    table.add_column("cut into", overflow="fold")
    for one in [*cuts, *compare(text, texts, vocabulary)]:
        count = len(one.tokens)
        table.add_row(
            one.kind,
            str(count),
            str(one.characters),
            f"{one.characters / max(1, count):.1f}",
            "|".join(_visible(token) for token in one.tokens),
        )
    console.print(table)


def _visible(token: str) -> str:
    """Return a token with visible spaces and escaped markup."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("[", r"\[")
