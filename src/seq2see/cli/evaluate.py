"""``seq2see evaluate``."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.answering import loaded
from seq2see.cli.data import Columns, are_dates, read
from seq2see.cli.output import NAMED, Refusals, aside, complain, console, in_json, progress_bar, say
from seq2see.cli.predict import Device, ModelName
from seq2see.errors import InputError, UserError, counted, isolated

if TYPE_CHECKING:
    from seq2see.evaluation.evaluate import Evaluation
    from seq2see.seq2seq import Seq2Seq

Pair = tuple[str, str]

DATES_AT_ONCE = 20_000  # made and scored together
PAIRS_AT_ONCE = 1000  # of a file, scored together
WORST = 5  # bad answers of a file that are shown
CONFUSIONS = 8  # rows of the table of confusions


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(evaluate)
    app.command()(score)


def parse_years(text: str) -> tuple[int, int]:
    """Read ``1000-2025`` or ``1845``."""
    match = re.fullmatch(r"([0-9]{4})(?:-([0-9]{4}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1000 <= first <= last <= 9999:
        raise UserError(f"--years is {text!r}: two years from 1000 to 9999 were expected, such as 1000-2025.")
    return first, last


def evaluate(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="dates|FILE…",
            help="What to score on: generated dates, a file of pairs, two parallel files, or hf:NAME:CONFIG:SPLIT.",
        ),
    ] = None,
    model: ModelName = "dates",
    columns: Columns = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", metavar="A B", help="Two models on the same file, by paired bootstrap."),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option("--beam", "-b", min=1, help="Of a file: width of the beam search; the model's own if not given."),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst", metavar="N", min=0, help=f"Of a file: number of bad answers to show; {WORST} if not given."
        ),
    ] = None,
    years: Annotated[
        str | None, typer.Option("--years", metavar="A-B", help="Only dates of these years; 1000-9999.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Score a random sample of N instead of all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which random N.")] = 0,
    at_least: Annotated[
        float | None,
        typer.Option(
            "--at-least", metavar="SHARE", min=0, max=1, help="Exit with status 1 if the exact match is lower."
        ),
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Score a model: exact match, character error rate, loss; of a file also BLEU, chrF, lengths, the worst answers.

    [dim]seq2see evaluate dates --years 1000-2025 --sample 10000[/dim]

    [dim]seq2see evaluate test.tsv --model runs/mine[/dim]

    [dim]seq2see evaluate test.tsv --compare runs/mine runs/other[/dim]
    """
    from seq2see.storage import folder

    if data is None or are_dates(data):
        if compare is not None:
            raise UserError("--compare needs a file of pairs to compare the two models on.")
        if data is None and folder.read_config(folder.find(model)).task != "dates":
            raise UserError(f"Only dates are generated: give a file of pairs to score {model} on.")
        if columns is not None:
            raise UserError("--columns is for a file of pairs; dates are generated.")
        if beam is not None and beam > 1:
            raise UserError("--beam is for a file of pairs; of dates the single best prefix is kept.")
        if worst is not None:
            raise UserError("--worst is for a file of pairs; of dates every wrong answer is shown.")
        scores = _dates(model, parse_years(years or "1000-9999"), sample, seed, as_json, device)
        match = scores.exact_match
    else:
        if years is not None:
            raise UserError("--years is for dates; a file of pairs is scored as it is.")
        pairs = _sampled(read_named(*data, columns=columns), sample, seed)
        if compare is not None:
            if at_least is not None:
                raise UserError("--at-least is for one model: leave it out, or leave out --compare.")
            if worst is not None:
                raise UserError("--worst is for one model: leave it out, or leave out --compare.")
            _compare(pairs, compare, beam, as_json, device)
            return
        match = _file(pairs, model, beam, WORST if worst is None else worst, as_json, device)
    if at_least is not None and match < at_least:
        complain(f"The exact match is below {at_least}.")
        raise typer.Exit(1)


def _dates(model: str, years: tuple[int, int], sample: int | None, seed: int, as_json: bool, device: str) -> Evaluation:
    """Score a model on generated dates."""
    import numpy as np

    from seq2see.evaluation.evaluate import Evaluation
    from seq2see.tasks.dates import all_ordinals, pairs_of

    first, last = years
    ordinals = all_ordinals(first, last)
    if sample is not None:
        if sample > len(ordinals):
            raise UserError(f"--sample is {sample:,}, but the years {first}-{last} have {len(ordinals):,} dates.")
        ordinals = np.random.default_rng(seed).choice(ordinals, sample, replace=False)
    found = loaded(model, device, characters=len("2025-09-03") * len(ordinals))
    date = pairs_of(ordinals[:1])[0][0]
    try:
        found.answerer.check(date)
        if why := found.answerer.unseen(date):
            raise InputError(f"{why}.")
    except InputError as error:
        raise UserError(f"{model} takes no dates: {error} Give a file of pairs to score it on.") from None
    scores, started = Evaluation(), time.perf_counter()
    with progress_bar("dates") as bar:
        task = bar.add_task("evaluating", total=len(ordinals), speed="")
        for begin in range(0, len(ordinals), DATES_AT_ONCE):
            scores.add(found.evaluate(pairs_of(ordinals[begin : begin + DATES_AT_ONCE])))
            scores.answers.clear()  # millions of right answers take memory
            bar.update(task, completed=scores.pairs, speed=f"{scores.pairs / (time.perf_counter() - started):,.0f}/s")
    seconds = time.perf_counter() - started
    if as_json:
        print(in_json({
            "data": "dates", "years": [first, last], "pairs": scores.pairs, "exact": scores.exact,
            "exact_match": scores.exact_match, "character_error_rate": scores.character_error_rate,
            "loss": scores.loss, "seconds": seconds,
            "misses": [{"input": s, "expected": e, "output": g} for s, e, g in scores.misses],
        }))  # fmt: skip
    else:
        for source, expected, given in scores.misses:
            say(f"miss: {source} → {given!r}, expected {expected!r}")
        console.print(f"exact match           {scores.exact:,} of {scores.pairs:,} ({scores.exact_match:.4%})")
        console.print(f"character error rate  {scores.character_error_rate:.4%}")
        console.print(f"loss                  {scores.loss:.3g} nats a token, teacher-forced")
        console.print(f"time                  {seconds:.1f} s, {scores.pairs / seconds:,.0f} dates/s")
    return scores


def read_named(*data: str, columns: str | None = None) -> list[Pair]:
    """Read the pairs of a file, and name the rows that are skipped."""
    corpus = read(*data, columns=columns)
    _complain_of([f"{corpus.name}, {fault}: skipped." for fault in corpus.faults], "bad rows are skipped")
    return corpus.pairs


def _complain_of(messages: list[str], what: str) -> None:
    """Print the first messages, and count the others."""
    for message in messages[:NAMED]:
        complain(message)
    if len(messages) > NAMED:
        complain(f"{len(messages) - NAMED:,} more {what}.")


def _sampled(pairs: list[Pair], sample: int | None, seed: int) -> list[Pair]:
    if sample is None:
        return pairs
    if sample > len(pairs):
        raise UserError(f"--sample is {sample:,}, but the file has {counted(len(pairs), 'pair')}.")
    import numpy as np

    return [pairs[i] for i in np.random.default_rng(seed).choice(len(pairs), sample, replace=False).tolist()]


def _characters(pairs: list[Pair]) -> int:
    """Count the characters to answer."""
    return sum(len(source) for source, _ in pairs)


def _answered(name: str, model: Seq2Seq, pairs: list[Pair], beam: int | None) -> Evaluation:
    """Let a model answer freely; a refused source counts as wrong and is reported."""
    from seq2see.evaluation.evaluate import Evaluation
    from seq2see.seq2seq import SEEN, trained_on

    if seen := trained_on(model, [source for source, _ in pairs]):
        complain(f"{name}: {SEEN % (f'{seen:,}', f'{len(pairs):,}')}")
    answers = model.answers([source for source, _ in pairs], beam=beam, probabilities=False)
    refused = [f"pair {n}: {answer.error}" for n, answer in enumerate(answers, 1) if answer.error is not None]
    if len(refused) == len(pairs):
        raise UserError(f"{name} takes none of {counted(len(pairs), 'source')}. The first, {refused[0]}")
    _complain_of([f"{name}, {message}" for message in refused], f"pairs are refused by {name}")
    given = [(s, t, a.output or "") for (s, t), a in zip(pairs, answers, strict=True)]
    return Evaluation.of(given, separator=model.tokenizers.target.separator)


def _loss(model: Seq2Seq, pairs: list[Pair]) -> tuple[float | None, int]:
    """Return the mean −log P(token) of the pairs that can be scored, and their number; report the others."""
    from seq2see.evaluation.evaluate import score_what_can_be

    read = [(model.answerer.read(source), model.answerer.folded(target)) for source, target in pairs]
    scored, refused = score_what_can_be(model.network.inner(), model.tokenizers, read)
    for place, reason in [*refused.items()][:1]:
        count = counted(len(refused), "pair")
        complain(f"The loss leaves out {count} that cannot be scored. The first, pair {place + 1:,}: {reason}")
    tokens = [value for row in scored for value in row]
    return -sum(tokens) / len(tokens) if tokens else None, len(scored)


def _file(pairs: list[Pair], name: str, beam: int | None, worst: int, as_json: bool, device: str) -> float:
    """Score a model on the pairs of a file; return its exact match."""
    from seq2see.data.cuts import are_sentences

    model, started = loaded(name, device, characters=_characters(pairs)), time.perf_counter()
    with aside.status("Answering …"):
        found = _answered(name, model, pairs, beam)
    seconds = time.perf_counter() - started
    sentences = are_sentences(pairs)  # BLEU counts runs of four words, and means nothing for single words
    bleu, chrf = found.bleu() if sentences else None, found.chrf()
    loss, loss_pairs = _loss(model, pairs)
    separator = model.tokenizers.target.separator
    match, buckets, bad = found.exact_match, found.by_length(), found.worst(worst, separator)
    unit = "characters" if found.are_words else "words"
    confused = [] if sentences else found.confusions(separator)[:CONFUSIONS]
    any_target = found.by_source(separator)  # None if each source has one target
    if as_json:
        print(in_json({
            "pairs": len(pairs), "beam": beam or model.config.decoding.beam, "exact": found.exact, "exact_match": match,
            "character_error_rate": found.character_error_rate, "token_error_rate": found.token_error_rate,
            "by_source": {"sources": any_target.pairs, "exact_match": any_target.exact_match,
                          "token_error_rate": any_target.token_error_rate},
            "bleu": vars(bleu) if bleu else None,
            "chrf": vars(chrf), "loss": loss, "loss_pairs": loss_pairs, "seconds": seconds,
            "confusions": [one._asdict() for one in confused],
            "by_length": [{unit: words, "pairs": part.pairs, "exact_match": part.exact_match,
                           "bleu": part.bleu().score if sentences else None} for words, part in buckets],
            "worst": [{"chrf" if separator is None else "right_symbols": c, "input": s, "expected": e, "output": g}
                      for c, s, e, g in bad],
        }))  # fmt: skip
        return match
    console.print(f"exact match           {found.exact:,} of {len(pairs):,} ({match:.2%})")
    console.print(f"character error rate  {found.character_error_rate:.2%}")
    if separator is None:
        console.print(f"word error rate       {found.token_error_rate:.2%}  (WER)")
    else:
        console.print(f"symbol error rate     {found.token_error_rate:.2%}  (PER, where symbols are phones)")
    if any_target.pairs < found.pairs:
        rate = any_target.token_error_rate
        console.print(
            f"any target counts     {any_target.exact:,} of {any_target.pairs:,} sources ({any_target.exact_match:.2%}), "
            f"error rate {rate:.2%}"
        )
    for score in (bleu, chrf) if bleu else (chrf,):
        label, _, signature = score.signature.partition("|")
        say(f"{label:21} {score.score:.2f}  ({signature})")
    told = "unknown: no pair can be scored" if loss is None else f"{loss:.3g} nats a token, teacher-forced"
    some = f", of {loss_pairs:,} of {len(pairs):,} pairs" if 0 < loss_pairs < len(pairs) else ""
    console.print(f"loss                  {told}{some}")
    console.print(f"time                  {seconds:.1f} s, {len(pairs) / seconds:,.0f} pairs/s")
    if len(buckets) > 1:
        console.print(f"\n{unit + ' of the source':24}   pairs  exact match{'   BLEU' if sentences else ''}")
        for words, part in buckets:
            last = f" {part.bleu().score:6.2f}" if sentences else ""
            console.print(f"{words:>24} {part.pairs:7,} {part.exact_match:12.2%}{last}")
    if confused:
        console.print(f"\n{'right':>10} {'said':>10} {'times':>7}  where in the answer, on average")
        for one in confused:
            right, said = (isolated(f"{text or '–':>10}") for text in (one.expected, one.given))
            say(f"{right} {said} {one.times:7,}  {one.place:.0%}")
    if bad:
        by = "chrF" if separator is None else "share of right symbols, %"
        console.print(f"\nthe worst answers, by {by}")
        for value, *texts in bad:
            source, expected, given = map(isolated, texts)
            if sentences:  # one below the other, for comparison by eye
                lines = f"{value:5.1f}  {source}\n    →  {given}\nright  {expected}"
            else:
                lines = f"{value:5.1f}  {source} → {given}   (right: {expected})"
            say(lines)
    return match


def _compare(pairs: list[Pair], names: tuple[str, str], beam: int | None, as_json: bool, device: str) -> None:
    """Score two models on the same pairs, and test whether the difference is significant."""
    from seq2see.data.cuts import are_sentences
    from seq2see.evaluation.metrics import compare_bleu, compare_exact

    with aside.status("Answering …"):
        a, b = (_answered(name, loaded(name, device, characters=_characters(pairs)), pairs, beam) for name in names)
    methods = (compare_bleu, compare_exact) if are_sentences(pairs) else (compare_exact,)
    results = [compare(a.given, b.given, a.expected) for compare in methods]
    if as_json:
        print(in_json({"pairs": len(pairs), "a": names[0], "b": names[1], "results": [vars(r) for r in results]}))
        return
    say(f"{counted(len(pairs), 'pair')}; A is {names[0]}, B is {names[1]}.")
    console.print(f"{'':12} {'A':>7} {'B':>7} {'B-A':>7}  {'95 % interval':>16} {'p':>7}")
    for result in results:
        low, high = result.interval
        verdict = ("B is better" if result.b > result.a else "A is better") if result.clear else "may be chance"
        console.print(
            f"{result.metric:12} {result.a:7.2f} {result.b:7.2f} {result.b - result.a:+7.2f}  "
            f"{f'{low:+.2f} to {high:+.2f}':>16} {result.p_value:7.3f}  {verdict}"
        )
    say(results[0].signature, style="dim")


def score(
    data: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Pairs: a TSV, CSV or JSON-lines file, or two parallel files.")
    ],
    model: ModelName = "dates",
    columns: Columns = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, with every token's log-probability.")
    ] = False,
) -> None:
    """Print how likely a model finds given pairs: log P(target | source), its mean per token, source and target.

    A pair that the model cannot take gets an empty line (an "error" in JSON), and the first ten are explained
    on standard error. Exit status: 0 if all were scored, 1 if some were refused, 2 if none could be.

    [dim]seq2see score pairs.tsv --model runs/mine[/dim]
    """
    from seq2see.errors import InputError
    from seq2see.seq2seq import load

    pairs, loaded = read_named(*data, columns=columns), load(model)
    refused = Refusals("pair")
    for begin in range(0, len(pairs), PAIRS_AT_ONCE):
        part = pairs[begin : begin + PAIRS_AT_ONCE]
        try:
            rows: list[list[float] | str] = [*loaded.log_probabilities(part)]
        except InputError:  # find out which pair is at fault
            rows = []
            for number, pair in enumerate(part, begin + 1):
                try:
                    rows += loaded.log_probabilities([pair])
                except InputError as error:
                    refused.add(number, str(error))
                    rows.append(str(error))
        for (source, target), row in zip(part, rows, strict=True):
            record: dict[str, object] = {"input": source, "target": target}
            if isinstance(row, str):
                print(in_json({**record, "error": row}) if as_json else "")
            elif as_json:
                tokens = loaded.tokenizers.target.tokens(loaded.tokenizers.target.encode(target)[1:])
                named = [{"token": t, "log_probability": v} for t, v in zip(tokens, row, strict=True)]
                record |= {"log_probability": sum(row), "tokens": named}
                print(in_json(record))
            else:
                print(f"{sum(row):.4f}\t{sum(row) / len(row):.4f}\t{source}\t{target}")
    refused.close("the answers say why" if as_json else "--json says why for each")
    if refused.count:
        complain(f"{len(pairs) - refused.count:,} scored, {refused.count:,} refused.")
        raise typer.Exit(1 if refused.count < len(pairs) else 2)
