"""``seq2see evaluate``, ``score`` and ``calibrate``."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from seq2see.cli.answering import loaded
from seq2see.cli.data import are_dates, read
from seq2see.cli.lines import characters_in
from seq2see.cli.options import AsJson, Columns, Device, ModelName, Years
from seq2see.cli.output import Refusals, aside, complain, complain_of, console, in_json, progress, say
from seq2see.errors import FolderError, InputError, UserError, counted, isolated

if TYPE_CHECKING:
    from seq2see.evaluation.evaluate import Evaluation
    from seq2see.evaluation.metrics import Score
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
    app.command()(calibrate)


def parse_years(text: str) -> tuple[int, int]:
    """Read ``1000-2025`` or ``1845``."""
    match = re.fullmatch(r"([0-9]{4})(?:-([0-9]{4}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1000 <= first <= last <= 9999:
        raise UserError(f"--years is {text!r}: two years from 1000 to 9999 were expected, such as 1000-2025.")
    return first, last


def evaluate(
    data: Annotated[list[str] | None, Argument(metavar="dates|FILE…", help="What to score on: generated dates, a file "
                    "of pairs, two parallel files, or hf:NAME:CONFIG:SPLIT.")] = None,
    model: ModelName = "dates",
    columns: Columns = None,
    compare: Annotated[tuple[str, str] | None, Option("--compare", metavar="A B",
                       help="Two models on the same file, by paired bootstrap.")] = None,
    beam: Annotated[int | None, Option("--beam", "-b", min=1,
                    help="Of a file: width of the beam search; the model's own if not given.")] = None,
    worst: Annotated[int | None, Option("--worst", metavar="N", min=0,
                     help=f"Of a file: number of bad answers to show; {WORST} if not given.")] = None,
    years: Years = None,
    sample: Annotated[int | None, Option("--sample", metavar="N", min=1,
                      help="Score a random sample of N instead of all.")] = None,
    seed: Annotated[int, Option("--seed", min=0, help="Which random N.")] = 0,
    at_least: Annotated[float | None, Option("--at-least", metavar="SHARE", min=0, max=1,
                        help="Exit with status 1 if the exact match is lower.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:  # fmt: skip
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
        for name, is_given in (
            ("columns", columns is not None),
            ("beam", (beam or 1) > 1),
            ("worst", worst is not None),
        ):
            if is_given:
                raise UserError(
                    f"--{name} is for a file of pairs; dates are generated, and every wrong answer is shown."
                )
        match = _dates(model, parse_years(years or "1000-9999"), sample, seed, as_json, device).exact_match
    else:
        if years is not None:
            raise UserError("--years is for dates; a file of pairs is scored as it is.")
        pairs = _sampled(read_named(*data, columns=columns), sample, seed)
        if compare is not None:
            for name, value in (("at-least", at_least), ("worst", worst)):
                if value is not None:
                    raise UserError(f"--{name} is for one model: leave it out, or leave out --compare.")
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
    with progress("evaluating", "dates", lambda: len(ordinals)) as advance:
        for begin in range(0, len(ordinals), DATES_AT_ONCE):
            part = ordinals[begin : begin + DATES_AT_ONCE]
            scores.add(found.evaluate(pairs_of(part)))
            scores.answers.clear()  # millions of right answers take memory
            advance(len(part))
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
    complain_of([f"{corpus.name}, {fault}: skipped." for fault in corpus.faults], "bad rows are skipped")
    return corpus.pairs


def _sampled(pairs: list[Pair], sample: int | None, seed: int) -> list[Pair]:
    if sample is None:
        return pairs
    if sample > len(pairs):
        raise UserError(f"--sample is {sample:,}, but the file has {counted(len(pairs), 'pair')}.")
    import numpy as np

    return [pairs[i] for i in np.random.default_rng(seed).choice(len(pairs), sample, replace=False).tolist()]


def _for(name: str, device: str, pairs: list[Pair]) -> Seq2Seq:
    """Load a model for the characters of these sources."""
    return loaded(name, device, characters=sum(len(source) for source, _ in pairs))


def _answered(name: str, model: Seq2Seq, pairs: list[Pair], beam: int | None) -> Evaluation:
    """Let a model answer freely; a refused source counts as wrong and is reported."""
    from seq2see.evaluation.evaluate import Evaluation
    from seq2see.seq2seq import SEEN, trained_on

    sources = [source for source, _ in pairs]
    if seen := trained_on(model, sources):
        complain(f"{name}: {SEEN % (f'{seen:,}', f'{len(pairs):,}')}")
    answers = model.answers(sources, beam=beam, probabilities=False)
    refused = [f"pair {n}: {answer.error}" for n, answer in enumerate(answers, 1) if answer.error is not None]
    if len(refused) == len(pairs):
        raise UserError(f"{name} takes none of {counted(len(pairs), 'source')}. The first, {refused[0]}")
    complain_of([f"{name}, {message}" for message in refused], f"pairs are refused by {name}")
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

    model, started = _for(name, device, pairs), time.perf_counter()
    with aside.status("Answering …"):
        found = _answered(name, model, pairs, beam)
    seconds = time.perf_counter() - started
    loss, loss_pairs = _loss(model, pairs)
    separator, sentences = model.tokenizers.target.separator, are_sentences(pairs)
    bad, any_target = found.worst(worst, separator), found.by_source(separator)
    confused = [] if sentences else found.confusions(separator)[:CONFUSIONS]
    # BLEU counts runs of four words, and means nothing for single words
    bleu, chrf, buckets = found.bleu() if sentences else None, found.chrf(), found.by_length()
    if as_json:
        print(in_json({
            "pairs": len(pairs), "beam": beam or model.config.decoding.beam, "exact": found.exact,
            "exact_match": found.exact_match,
            "character_error_rate": found.character_error_rate, "token_error_rate": found.token_error_rate,
            "by_source": {"sources": any_target.pairs, "exact_match": any_target.exact_match,
                          "token_error_rate": any_target.token_error_rate},
            "bleu": vars(bleu) if bleu else None,
            "chrf": vars(chrf), "loss": loss, "loss_pairs": loss_pairs, "seconds": seconds,
            "confusions": [one._asdict() for one in confused],
            "by_length": [{"characters" if found.are_words else "words": length, "pairs": part.pairs,
                           "exact_match": part.exact_match, "bleu": part.bleu().score if sentences else None}
                          for length, part in buckets],
            "worst": [{"chrf" if separator is None else "right_symbols": c, "input": s, "expected": e, "output": g}
                      for c, s, e, g in bad],
        }))  # fmt: skip
        return found.exact_match
    _print_scores(found, any_target, [bleu, chrf] if bleu else [chrf], separator)
    told = "unknown: no pair can be scored" if loss is None else f"{loss:.3g} nats a token, teacher-forced"
    some = f", of {loss_pairs:,} of {len(pairs):,} pairs" if 0 < loss_pairs < len(pairs) else ""
    console.print(f"loss                  {told}{some}")
    console.print(f"time                  {seconds:.1f} s, {len(pairs) / seconds:,.0f} pairs/s")
    if len(buckets) > 1:
        unit = f"{'characters' if found.are_words else 'words'} of the source"
        console.print(f"\n{unit:24}   pairs  exact match{'   BLEU' if sentences else ''}")
        for words, part in buckets:
            last = f" {part.bleu().score:6.2f}" if sentences else ""
            console.print(f"{words:>24} {part.pairs:7,} {part.exact_match:12.2%}{last}")
    if confused:
        console.print(f"\n{'right':>10} {'said':>10} {'times':>7}  where in the answer, on average")
        for one in confused:
            right, said = (isolated(f"{text or '–':>10}") for text in (one.expected, one.given))
            say(f"{right} {said} {one.times:7,}  {one.place:.0%}")
    if bad:
        console.print(f"\nthe worst answers, by {'chrF' if separator is None else 'share of right symbols, %'}")
    form = "{:5.1f}  {}\n    →  {}\nright  {}" if sentences else "{:5.1f}  {} → {}   (right: {})"  # to compare by eye
    for value, source, expected, given in bad:
        say(form.format(value, *map(isolated, (source, given, expected))))
    return found.exact_match


def _print_scores(found: Evaluation, any_target: Evaluation, scores: list[Score], separator: str | None) -> None:
    """Print the share of right answers, the error rates, and the scores of the answers as a whole."""
    console.print(f"exact match           {found.exact:,} of {found.pairs:,} ({found.exact_match:.2%})")
    console.print(f"character error rate  {found.character_error_rate:.2%}")
    rate, of = ("word", "(WER)") if separator is None else ("symbol", "(PER, where symbols are phones)")
    console.print(f"{f'{rate} error rate':21} {found.token_error_rate:.2%}  {of}")
    if any_target.pairs < found.pairs:
        console.print(
            f"any target counts     {any_target.exact:,} of {any_target.pairs:,} sources ({any_target.exact_match:.2%}), "
            f"error rate {any_target.token_error_rate:.2%}"
        )
    for one in scores:
        label, _, signature = one.signature.partition("|")
        say(f"{label:21} {one.score:.2f}  ({signature})")


def _compare(pairs: list[Pair], names: tuple[str, str], beam: int | None, as_json: bool, device: str) -> None:
    """Score two models on the same pairs, and test whether the difference is significant."""
    from seq2see.data.cuts import are_sentences
    from seq2see.evaluation.metrics import compare_bleu, compare_exact

    with aside.status("Answering …"):
        a, b = (_answered(name, _for(name, device, pairs), pairs, beam) for name in names)
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
    data: Annotated[list[str], Argument(metavar="FILE…", help="Pairs: a TSV, CSV or JSON-lines file, or two parallel "
                    "files.")],
    model: ModelName = "dates",
    columns: Columns = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object per line, with every token's "
                       "log-probability.")] = False,
) -> None:  # fmt: skip
    """Print how likely a model finds given pairs: log P(target | source), its mean per token, source and target.

    A pair that the model cannot take gets an empty line (an "error" in JSON), and the first ten are explained
    on standard error. Exit status: 0 if all were scored, 1 if some were refused, 2 if none could be.

    [dim]seq2see score pairs.tsv --model runs/mine[/dim]
    """
    from seq2see.evaluation.evaluate import score_what_can_be
    from seq2see.seq2seq import load

    pairs, scorer = read_named(*data, columns=columns), load(model)
    target, refused = scorer.tokenizers.target, Refusals("pair")
    for begin in range(0, len(pairs), PAIRS_AT_ONCE):
        part = pairs[begin : begin + PAIRS_AT_ONCE]
        folded = [(scorer.answerer.folded(text), scorer.answerer.folded(answer)) for text, answer in part]
        scored, reasons = score_what_can_be(scorer.network.inner(), scorer.tokenizers, folded)
        rows = iter(scored)
        for place, (source, answer) in enumerate(part):
            record: dict[str, object] = {"input": source, "target": answer}
            if place in reasons:
                refused.add(begin + place + 1, reasons[place])
                print(in_json({**record, "error": reasons[place]}) if as_json else "")
                continue
            row = next(rows)
            if as_json:
                tokens = zip(target.tokens(target.encode(folded[place][1])[1:]), row, strict=True)
                named = [{"token": token, "log_probability": value} for token, value in tokens]
                print(in_json({**record, "log_probability": sum(row), "tokens": named}))
            else:
                print(f"{sum(row):.4f}\t{sum(row) / len(row):.4f}\t{source}\t{answer}")
    refused.close("the answers say why" if as_json else "--json says why for each")
    if refused.count:
        complain(f"{len(pairs) - refused.count:,} scored, {refused.count:,} refused.")
        raise typer.Exit(1 if refused.count < len(pairs) else 2)


def calibrate(
    model: Annotated[str, Argument(metavar="DIR", help="The model folder to calibrate.")],
    file: Annotated[str, Option("--file", "-f", metavar="FILE",
                    help="Pairs that were not in the training; A,B if parallel.")],
    columns: Columns = None,
    like: Annotated[str | None, Option("--like", metavar="FILE",
                    help="The pairs of the training, to recognise inputs that differ from them.")] = None,
    chrf: Annotated[float | None, Option("--chrf", metavar="N", min=1, max=100,
                    help="Least chrF of a right answer; the default for sentences is 40.")] = None,
    exact: Annotated[bool, Option("--exact", help="An answer is right only if it equals a target.")] = False,
    seed: Annotated[int, Option("--seed", min=0,
                    help="Seed of the choice of sources that are measured together.")] = 1,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Fit the confidence of a model's answers on pairs that were not in its training, and store it in the folder.

    Each fifth of the sources is measured with a fit on the other four. `train` does this by itself, with the
    validation and the test pairs. The folder gets confidence.json, reliability.png and a part of its card;
    then `predict --min-confidence P` withholds answers with a lower confidence.

    [dim]seq2see calibrate runs/mine --file held-out.tsv[/dim]
    """
    from seq2see.data.cuts import are_sentences
    from seq2see.data.pairs import hold_out
    from seq2see.evaluation import calibrate as work
    from seq2see.evaluation.confidence import FEWEST, GOOD_CHRF, read_confidence
    from seq2see.evaluation.familiar import Familiar
    from seq2see.inspection.plots import plot_reliability
    from seq2see.inspection.style import png
    from seq2see.storage import folder

    if exact and chrf is not None:
        raise UserError("--exact and --chrf were both given: an answer is right by one of them.")
    path = folder.find(model)
    try:
        read_confidence(path)
    except FolderError:  # a damaged one, or one of another version, is fitted again
        (path / folder.CONFIDENCE).unlink()
    judge = loaded(model, device, characters=characters_in(*map(Path, file.split(","))))
    pairs = _answerable(judge, read(file, columns=columns).pairs)
    if not pairs:
        raise UserError(f"The model takes no source of {file}: pairs like those of its training were expected.")
    threshold = None if exact else chrf or (GOOD_CHRF if are_sentences(pairs) else None)
    known = pairs if like is None else read(like, columns=columns, or_two=True).pairs
    source = judge.tokenizers.source
    with aside.status("Answering …"):
        engine = judge.network.engine_for(len(pairs))
        seen = work.observe(engine, judge.tokenizers, judge.config.decoding, pairs, threshold)
        Random(seed).shuffle(seen)
        texts = [judge.answerer.folded(text) for text, _ in known]
        lengths = [len(row) - len(source.before) - len(source.after) for row in source.encode_batch(texts)]
        # Without the training pairs, one half shows how surprising a text of the other half can be.
        one, other = hold_out(pairs, 0.5, len(pairs), seed)
        learned = texts if like is not None else [text for text, _ in one]
        familiar = Familiar.learn(learned, max(lengths), [text for text, _ in other])
        fitted = work.calibrated(seen, None, familiar, threshold)
    if fitted is None:
        raise UserError(
            f"{file} has {counted(len(seen), 'source')} that the model takes, and {sum(one[1] for one in seen):,} of the "
            f"answers are complete: {FEWEST} or more were expected."
        )
    command = " ".join(["seq2see", *sys.argv[1:]])
    card = work.with_section(judge.card, work.section(fitted, True, command))
    picture = png(plot_reliability(fitted))
    folder.write_atomically(path / folder.PICTURE, picture)
    folder.write_atomically(path / folder.CARD, card.encode())
    folder.write_atomically(path / folder.CONFIDENCE, fitted.to_json().encode())
    measured = fitted.measured
    if as_json:
        print(in_json({"criterion": fitted.criterion, "fitted_on": fitted.fitted_on, **vars(measured)}))
        return
    say(f"Confidence is {fitted.meaning}.")
    console.print(f"fitted on                    {fitted.fitted_on:,} sources")
    console.print(f"measured on {measured.pairs:,} answers that were not used for the fit, {measured.right:.2%} right")
    console.print(f"expected calibration error   {measured.error:.2%}  (10 bins)")
    rows = work.answered_above(fitted)
    none = f"no answer has a confidence of {work.THRESHOLDS[0]:.2f} or more"
    console.print("\nconfidence    answered    right" if rows else none)
    for least, share, right in rows:
        console.print(f"{least:10.2f} {share:11.1%} {right:8.1%}")
    say(f"Written to {path}: {folder.CONFIDENCE}, {folder.PICTURE} and the card.")


def _answerable(model: Seq2Seq, given: list[Pair]) -> list[Pair]:
    """Return the pairs as the model reads them; report those whose source it refuses.

    A target that the model cannot write stays: its answer is wrong.
    """
    pairs, reasons = [], []
    for source, target in given:
        try:
            model.answerer.check(source)
            if why := model.answerer.unseen(source):  # its answer has no confidence
                raise InputError(f"{why}.")
        except InputError as error:
            reasons.append(str(error))
        else:
            pairs.append((model.answerer.read(source), model.answerer.folded(target)))
    if reasons:
        left = f"{counted(len(reasons), 'pair')} left out, since the model does not take the source."
        complain(f"{left} The first: {reasons[0]}")
    return pairs
