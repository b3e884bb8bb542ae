"""The doctor: finds the faults of pairs before a training, and says what to do about them."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
import torch

from seq2see import machine
from seq2see.config import Config
from seq2see.data import language
from seq2see.data.cuts import Cuts, are_sentences, cuts_of, tokenizers_of
from seq2see.data.pairs import HUB, Corpus, Pair, Splits, split
from seq2see.data.recipe import LONGEST, Facts, Recipe, choose, config_of
from seq2see.data.shards import Survey
from seq2see.data.variation import copied_share
from seq2see.errors import UserError, counted, shown
from seq2see.tokenizers.tokenizer import Tokenizer

ENOUGH = 500  # pairs; nothing useful can be learned from fewer
FEW = 20  # pairs; what is split off fewer says nothing about unknown tokens
ENOUGH_SENTENCES = 10_000
NAMED_LINES = 5  # with a finding
# share of rows that can be answered right, below which the rows contradict each other
FEWEST, FEWEST_SENTENCES = 0.8, 0.5
SAME_TARGET, NEARLY_ALL = 0.5, 0.9  # share of rows with one and the same target
NO_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]")
EFFICIENCY = 0.3  # share of a matrix product's speed that training reaches on a CPU; a guess
UNITS = {"characters": "character", "symbols": "symbol"}  # what one token of these tokenizers is


@dataclass(frozen=True)
class Finding:
    """A finding of the doctor: a fault should be corrected; a remark is information."""

    fault: bool
    text: str
    advice: str = ""


@dataclass
class Report:
    """All facts and findings."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    recipe: Recipe | None = None  # for a training on a CPU

    @property
    def faults(self) -> list[Finding]:
        """The findings that should be corrected."""
        return [finding for finding in self.findings if finding.fault]

    def fault(self, text: str, advice: str) -> None:
        """Add a fault."""
        self.findings.append(Finding(True, text, advice))

    def remark(self, text: str, advice: str = "") -> None:
        """Add a remark."""
        self.findings.append(Finding(False, text, advice))


def examine(
    corpus: Corpus,
    test: Corpus | None = None,
    found: Survey | None = None,
    preset: str | None = None,
    validation: Corpus | None = None,
) -> Report:
    """Check pairs thoroughly; ``validation`` and ``test`` are the parts that `train` is given.

    If the corpus is larger than memory, ``found`` is its survey, and ``corpus`` the sample of it.
    """
    report = inspect(corpus, test, validation)
    parts = _parts(corpus, test, found, validation)
    if found is None:
        sizes = [f"{len(part):,}" for part in (parts.train, parts.validation, parts.test)]
        told = f"{sizes[0]} for training, {sizes[1]} for validation, {sizes[2]} for the test"
        report.facts.append(("split", told))
    else:
        sample = f"{found.count:,} in {corpus.name}; the following is about a random {len(corpus.pairs):,} of them"
        report.facts[0] = ("pairs", sample)
    cuts = cuts_of(parts.train, whole=found is None)
    everything = parts.train
    if found is not None and cuts.kinds == ("characters", "characters"):
        everything = found.alphabet
    count = len(parts.train) if found is None else found.count
    tokenizers = tokenizers_of(cuts, parts.train, everything, count)
    lengths = _lengths(report, corpus, tokenizers)
    held_out = [*(validation.pairs if validation else ()), *parts.test]
    if held_out and (test or validation or len(corpus.pairs) >= FEW):
        _coverage(report, parts.train, held_out, tokenizers)
    copied = copied_share(parts.train) if found is None else 0.0
    facts = Facts.of([np.minimum(side, LONGEST) for side in lengths], cuts, copied=copied)
    facts = replace(facts, pairs=count, tokens=facts.tokens * count // len(corpus.pairs))
    report.recipe = choose(facts, preset)
    _costs(report, cuts, report.recipe, tokenizers)
    return report


def _parts(corpus: Corpus, test: Corpus | None, found: Survey | None, validation: Corpus | None) -> Splits:
    """Split the pairs as `train` does. Too few to split are all for training; they are a fault of their own."""
    if found is not None:
        return Splits(corpus.pairs, found.validation, found.test)
    watched, scored = (None if part is None else part.pairs for part in (validation, test))
    try:
        return split(corpus.pairs, watched, scored)
    except UserError:
        return Splits(corpus.pairs, watched or [], scored or [])


def inspect(corpus: Corpus, test: Corpus | None = None, validation: Corpus | None = None) -> Report:
    """Check the pairs without training a tokenizer, as `train` does at each start."""
    report = Report()
    _counts(report, corpus)
    _bad_rows(report, corpus)
    _duplicates(report, corpus)
    _targets(report, corpus)
    _characters(report, corpus)
    _sides(report, corpus)
    _languages(report, corpus, test)
    for name, part in (("validation", validation), ("test", test)):
        if part is not None:
            _overlap(report, corpus, name, part)
    return report


def lines_named(lines: Sequence[int]) -> str:
    """Name the first of some lines: ``lines 3, 7, 9``."""
    named = ", ".join(f"{line:,}" for line in lines[:NAMED_LINES])
    return f"line{'s' if len(lines) > 1 else ''} {named}{' …' if len(lines) > NAMED_LINES else ''}"


def _counts(report: Report, corpus: Corpus) -> None:
    pairs = corpus.pairs
    report.facts.append(("pairs", f"{len(pairs):,} in {corpus.name}"))
    if corpus.header:
        names = " and ".join(map(repr, corpus.header[:2]))
        report.facts.append(("columns", names) if corpus.name.startswith(HUB) else ("header", f"{names}: not a pair"))
    if corpus.columns > 2:
        report.facts.append(("columns", f"{corpus.columns}: {corpus.taken} are used"))
    if len(pairs) < ENOUGH:
        report.fault(
            f"{counted(len(pairs), 'pair')} {'is' if len(pairs) == 1 else 'are'} too few to train on",
            f"collect at least {ENOUGH:,}; about 2,000 suffice for a simple rule",
        )
    elif are_sentences(pairs) and len(pairs) < ENOUGH_SENTENCES:  # digits spelled out need only 2,000
        report.remark(
            f"{len(pairs):,} pairs are few for sentences",
            f"a fixed pattern can be learned from them; of free text expect phrases learned by heart, and translation "
            f"from some {ENOUGH_SENTENCES:,} pairs on",
        )


def _bad_rows(report: Report, corpus: Corpus) -> None:
    kinds: dict[str, list[int]] = defaultdict(list)
    for fault in corpus.faults:
        reason = fault.reason.split(" (")[0]
        kinds[reason if fault.reason.startswith(("has", "is")) else fault.reason].append(fault.line)
    advice = {
        "has one side": "there is no tab in it: complete it or delete it",
        "has an empty": "complete it or delete it",
        "is empty": "delete it",
        "is not UTF-8": "convert the file: iconv -f latin1 -t utf-8",
        "has more than": "cut it up, or delete it",
    }
    for reason, lines in kinds.items():
        what = next((text for start, text in advice.items() if reason.startswith(start)), "correct or delete it")
        report.fault(f"{counted(len(lines), 'row')} cannot be used ({lines_named(lines)}): {reason}", what)


def _duplicates(report: Report, corpus: Corpus) -> None:
    seen: dict[Pair, int] = {}
    repeated = []
    targets: dict[str, set[str]] = defaultdict(set)
    for pair, line in zip(corpus.pairs, corpus.lines, strict=True):
        if pair in seen:
            repeated.append(line)
        seen.setdefault(pair, line)
        targets[pair[0]].add(pair[1])
    if repeated:
        share = len(repeated) / len(corpus.pairs)
        report.remark(
            f"{counted(len(repeated), 'row')} ({share:.1%}) equal to an earlier one ({lines_named(repeated)})",
            "`train` uses them as given, and each row counts: keep them if they show what is frequent, as in "
            "running text; delete them if they are there by mistake",
        )
    several = [source for source, known in targets.items() if len(known) > 1]
    if several:
        # An answer is one text, so only the most frequent target of a source can be right.
        counts = Counter(corpus.pairs)
        best: dict[str, int] = defaultdict(int)
        for (source, _), count in counts.items():
            best[source] = max(best[source], count)
        most, worst = sum(best.values()) / len(corpus.pairs), max(several, key=lambda one: len(targets[one]))
        text = (
            f"{counted(len(several), 'source')} with more than one target ({shown(worst)} has {len(targets[worst]):,}), "
            f"so that at most {most:.1%} of the rows can be answered right"
        )
        contradicting = most < (FEWEST_SENTENCES if are_sentences(corpus.pairs) else FEWEST)
        (report.fault if contradicting else report.remark)(
            text,
            "for translation this is normal, but lowers the exact match; for a fixed rule, find out which "
            "target is right, or add what distinguishes them to the source",
        )


def _targets(report: Report, corpus: Corpus) -> None:
    """Report if nearly all targets are the same: a model would learn to answer nothing else."""
    [(target, count)] = Counter(target for _, target in corpus.pairs).most_common(1)
    share = count / len(corpus.pairs)
    if len(corpus.pairs) > 1 and share >= SAME_TARGET:
        every = "all rows have" if share == 1 else f"{share:.1%} of the rows have"
        (report.fault if share >= NEARLY_ALL else report.remark)(
            f"{every} the same target, {shown(target)}",
            "check that this is the right column; a model would learn to give this answer always",
        )


def _characters(report: Report, corpus: Corpus) -> None:
    """List rows with characters that do not belong in a text: control characters, and traces of a wrong decoding."""
    found = [
        (line, match[0])
        for pair, line in zip(corpus.pairs, corpus.lines, strict=True)
        if (match := NO_TEXT.search("\n".join(pair)))
    ]
    if found:
        named = ", ".join(sorted({f"U+{ord(character):04X}" for _, character in found})[:NAMED_LINES])
        report.fault(
            f"{counted(len(found), 'row')} with characters that do not belong in a text, {named} "
            f"({lines_named([line for line, _ in found])})",
            "delete the characters; U+FFFD comes from a wrong decoding: decode the file again",
        )


def _sides(report: Report, corpus: Corpus) -> None:
    same = [line for (s, t), line in zip(corpus.pairs, corpus.lines, strict=True) if s == t]
    if same and len(same) < 0.5 * len(corpus.pairs):
        # Some names and numbers are the same on both sides.
        few = len(same) < 0.005 * len(corpus.pairs)
        text = f"{counted(len(same), 'row')} with two identical sides ({lines_named(same)})"
        (report.remark if few else report.fault)(
            text, "delete them if they should differ: untranslated rows teach copying"
        )
    ratios = np.array([len(t) / len(s) for s, t in corpus.pairs])
    middle = float(np.median(ratios))
    odd = [
        line
        for ratio, (s, t), line in zip(ratios.tolist(), corpus.pairs, corpus.lines, strict=True)
        if max(len(s), len(t)) > 40 and not middle / 5 < ratio < middle * 5
    ]
    if odd:
        report.remark(
            f"{counted(len(odd), 'row')} with sides of very different length ({lines_named(odd)})",
            "check them: the sides may not belong together",
        )


def _languages(report: Report, corpus: Corpus, test: Corpus | None) -> None:
    step = max(1, len(corpus.pairs) // 2000)
    both = languages_of(corpus.pairs[::step])
    report.facts.append(("written in", f"{_named(both[0])} → {_named(both[1])} (a guess)"))
    wrong = misnamed(corpus, both)
    if wrong:
        report.fault(wrong, "swap the columns, or the header, or the order of the files")
    rows = [line for pair, line in zip(corpus.pairs, corpus.lines, strict=True) if language.swapped(pair, both)]
    if rows:
        report.fault(
            f"{counted(len(rows), 'row')} with swapped sides: {_named(both[1])} → {_named(both[0])} "
            f"({lines_named(rows)}; a guess)",
            "swap their sides, or delete them",
        )
    if test is not None and both[0] != both[1] and languages_of(test.pairs[:2000]) == (both[1], both[0]):
        report.fault(f"{test.name} goes the other way than {corpus.name} (a guess)", "swap its columns")


def languages_of(pairs: Sequence[Pair]) -> tuple[str, str]:
    """Guess what each side is written in."""
    return language.guess_all(s for s, _ in pairs), language.guess_all(t for _, t in pairs)


def misnamed(corpus: Corpus, both: tuple[str, str]) -> str:
    """Return a message if the header or the file names give the two languages in the other order."""
    names = corpus.header[:2]
    if not names and ", " in corpus.name:
        names = [next((part for part in reversed(name.split(".")) if part in language.NAMED), "")
                 for name in corpus.name.split(", ")]  # fmt: skip
    promised = tuple(language.NAMED.get(name.strip().lower(), "") for name in names)
    if both[0] != both[1] and promised == (both[1], both[0]):
        return (
            f"{corpus.name} names its sides {names[0]!r} and {names[1]!r}, but they look like {_named(both[0])} and "
            f"{_named(both[1])} (a guess): the columns seem to be swapped"
        )
    return ""


def _named(name: str) -> str:
    return (
        name if name in language.SMALL_WORDS else f"{name.capitalize()} letters" if name.isupper() else name or "signs"
    )


def _overlap(report: Report, corpus: Corpus, name: str, part: Corpus) -> None:
    """Describe a given part, and report its sources that are also in the training."""
    known = {source for source, _ in corpus.pairs}
    both = [line for (source, _), line in zip(part.pairs, part.lines, strict=True) if source in known]
    report.facts.append((name, f"{counted(len(part.pairs), 'pair')} in {part.name}"))
    if both:
        scores = " and prints the score without them, too" if name == "test" else ""
        report.remark(
            f"{len(both):,} of {len(part.pairs):,} {name} sources are also in the training "
            f"({lines_named(both)} of {part.name})",
            f"`train` uses them as given{scores}; `train --unseen` leaves their rows out of the training",
        )
    if part.faults:
        report.fault(
            f"{counted(len(part.faults), 'row')} of {part.name} cannot be used: {part.faults[0]}",
            "correct or delete them",
        )


def _lengths(report: Report, corpus: Corpus, tokenizers: tuple[Tokenizer, Tokenizer]) -> list[np.ndarray]:
    """Report and return the lengths of both sides, in tokens."""
    found = []
    for side, name in enumerate(("source", "target")):
        texts = [pair[side] for pair in corpus.pairs]
        lengths = np.array(_tokens_of(tokenizers[side], texts))
        middle, high, most = (int(np.percentile(lengths, q)) for q in (50, 95, 100))
        found.append(lengths)
        characters = median(map(len, texts))
        report.facts.append(
            (
                f"{name} length",
                f"{middle} tokens (median), {high} at 95 %, {most} at most (median: {characters:.0f} characters)",
            )
        )
        long = [line for length, line in zip(lengths.tolist(), corpus.lines, strict=True) if length > LONGEST]
        if long:
            report.fault(
                f"{counted(len(long), 'row')} with a {name} of more than {LONGEST} tokens ({lines_named(long)})",
                "cut them up: `train` leaves them out",
            )
    return found


def _tokens_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text; an unknown one counts, too."""
    if tokenizer.letters is None:
        return [len(ids) for ids in tokenizer.encode_batch(texts)]
    ends = len(tokenizer.before) + len(tokenizer.after)
    return [len([*tokenizer.cut(text)]) + ends for text in texts]


def _coverage(
    report: Report, train: Sequence[Pair], held_out: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer]
) -> None:
    """Report which share of held-out tokens is in the vocabulary; of sub-words, which share of words is in training."""
    for side, name in enumerate(("source", "target")):
        tokenizer = tokenizers[side]
        learned, texts = ([pair[side] for pair in part] for part in (train, held_out))
        if tokenizer.letters is None:  # sub-words, which can write any text
            what, known = "character", {character for text in learned for character in text}
            new = {character for text in texts for character in text} - known
            words = {word for text in learned for word in _words(text)}
            found, units = [word in words for text in texts for word in _words(text)], "words"
            advice = "the model reads and writes them as bytes, which it cannot have learned"
        else:
            what, known = UNITS.get(tokenizer.kind.partition(":")[0], "token"), set(tokenizer.letters)
            tokens = [token for text in texts for token in tokenizer.cut(text)]
            new, found, units = set(tokens) - known, [token in known for token in tokens], f"{what}s"
            advice = (
                "the model cannot write them, so these answers will be wrong"
                if side
                else "the model reads a similar known one in their place, or refuses the text"
            )
        seen = sum(found) / max(1, len(found))
        report.facts.append((f"{name} coverage", f"{seen:.1%} of held-out {units} occur in training"))
        if new:
            examples = " ".join(map(repr, sorted(new)[:NAMED_LINES]))
            report.remark(
                f"{counted(len(new), what)} of held-out {name}s {'does' if len(new) == 1 else 'do'} not occur in "
                f"training: {examples}",
                f"{advice}: add pairs that have them to the training",
            )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _costs(report: Report, cuts: Cuts, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Report the model and the cost of its training."""
    config, longest = config_of(recipe, tokenizers), recipe.facts.longest
    cut = [f"{kind} ({tokenizer.size:,} tokens)" for kind, tokenizer in zip(cuts.kinds, tokenizers, strict=True)]
    report.facts.append(("cut into", f"{cut[0] if cuts.shared else f'{cut[0]} → {cut[1]}'}: {cuts.why}"))
    report.facts.append(("preset" if recipe.preset else "recipe", str(recipe)))
    report.facts.append(("model", counted(config.model.parameters, "parameter")))
    needed, there = memory_of(config, longest), machine.memory()
    size = f"{needed / 2**30:.1f} GiB" if needed >= 2**30 else f"{needed / 2**20:.0f} MiB"
    report.facts.append(("memory", f"{size} for the worst batch (an estimate)"))
    if there is not None and needed > 0.9 * there:
        report.fault(
            f"the worst batch needs about {needed / 2**30:.1f} GiB, but this machine has {there / 2**30:.1f}",
            f"train with --set training.batch_tokens={config.training.batch_tokens // 4}, or a smaller --preset",
        )
    if config.training.budget is None:
        report.facts.append(("time", f"{in_words(seconds_of(config))} on this CPU (an estimate)"))
    else:
        most = f"at most {in_words(config.training.budget)} on a CPU (--budget), less when nothing more comes"
        report.facts.append(("time", most))


def memory_of(config: Config, longest: int) -> float:
    """Estimate the bytes of the largest batch's training step: weights, Adam, activations, logits."""
    shape, tokens = config.model, max(config.training.batch_tokens, longest)
    layer = 16 * shape.d_model + 2 * shape.d_ff  # numbers kept per token and layer for the backward pass
    layers = shape.encoder_layers * layer + shape.decoder_layers * 1.5 * layer
    return 16.0 * shape.parameters + 4.0 * tokens * (layers + 3 * shape.target_vocabulary)


def seconds_of(config: Config) -> float:
    """Estimate the time of a training on this CPU from the measured speed of a matrix product."""
    shape, width = config.model, max(128, config.model.d_model)
    # Random numbers would change the random state, which a resumed training has just restored.
    a, b = torch.ones(2048, width), torch.ones(width, 4 * width)
    runs, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < 0.1:
        a @ b
        runs += 1
    speed = EFFICIENCY * runs * 2 * a.numel() * b.shape[1] / spent
    body = (shape.encoder_layers * (4 * shape.d_model**2 + 2 * shape.d_model * shape.d_ff)
            + shape.decoder_layers * (8 * shape.d_model**2 + 2 * shape.d_model * shape.d_ff)
            + shape.d_model * shape.target_vocabulary)  # fmt: skip
    passes = config.training.accumulate * (2 if config.training.r_drop else 1)
    return 6.0 * body * passes * config.training.batch_tokens * config.training.steps / speed


def in_words(seconds: float) -> str:
    """Format a duration roughly."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
