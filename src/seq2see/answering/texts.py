"""Texts to answers: what a model reads of a text, the search for its answer, and how sure the answer is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from typing import TYPE_CHECKING, cast

from seq2see.answering.answer import Alternative, Answer, Token
from seq2see.answering.network import Network
from seq2see.answering.options import Options
from seq2see.config import Config, DecodingConfig
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import Hypothesis, Phrase
from seq2see.errors import InputError, UserError, shown
from seq2see.evaluation.confidence import Confidence
from seq2see.storage.folder import Tokenizers
from seq2see.tasks import dates, human_dates
from seq2see.tokenizers.folding import fold_unknown
from seq2see.tokenizers.symbols import FEATURE, joined
from seq2see.tokenizers.tokenizer import Tokenizer, fold

if TYPE_CHECKING:
    from seq2see.decoding.allowed import Automaton
    from seq2see.evaluation.evaluate import Pair
    from seq2see.inspection.alignment import Alignment

#: Texts that the library encodes together, on all cores. Another thread that decodes meanwhile waits for all of them.
ENCODED_AT_ONCE = 1024
NO_ANSWER = (
    "The search found no answer that its rules allow: change the text, what is required of the answer, or the rules "
    "under [decoding] in the model's config.toml."
)
LONGEST_TEXT = 1_000_000  # characters; a longer text is refused unread
MOST_TOKENS = 200  # tokens; a longer sentence is cut after a clause, since models learn from shorter ones

#: The checks of a task on its inputs, beyond their characters.
CHECKS: dict[str, Callable[[str], None]] = {"dates": dates.check, "human-dates": human_dates.check}

Span = tuple[int, int]
Input = str | Sequence[str] | Mapping[str, str]  # a text, or a word and its features


class Texts:
    """What a model reads and writes."""

    def __init__(self, config: Config, tokenizers: Tokenizers, network: Network, confidence: Confidence | None) -> None:
        self.config, self.tokenizers, self.network, self.confidence = config, tokenizers, network, confidence
        self._language: str | None = None  # that the model reads, found at first use; empty if unknown
        self._allowed: tuple[Options, Automaton] | None = None  # the last constraints and their automaton

    @property
    def target(self) -> Tokenizer:
        """How answers are cut."""
        return self.tokenizers.target

    # --- reading ---

    def text_of(self, given: Input) -> str:
        """Return the text of an input: a word and its features may be a tuple, a list or a dict."""
        if not isinstance(given, tuple | list | Mapping):
            return cast(str, given)  # ``_readable`` refuses what is no text
        if self.tokenizers.source.kind != "features":
            raise UserError(
                f"A text was expected, but {given!r:.60} is of type {type(given).__name__}: give one text. Only a model "
                "that was trained on words with features takes several texts as one input."
            )
        text = joined(given)
        if not isinstance(text, str):
            raise UserError(
                f"An input is {given!r:.60}: a word and its features were expected, such as ('walk', 'V;PST')."
            )
        return text

    def folded(self, text: str) -> str:
        """Return a text as the model reads it, in the form of the training: NFC, with white space folded.

        Dates stay as they are, and so do texts for an imported model, whose tokenizer prepares them. For a model that
        was trained on words with features, the features may follow the word after a tab: ``walk<TAB>V;PST``.
        """
        if self.config.task == "human-dates":
            return human_dates.fold(text)
        if self.config.task in CHECKS or self.config.task == "imported":
            return text
        return fold(self.tokenizers.source.untabbed(text))

    def read(self, text: str) -> str:
        """Return a text as the model reads it: folded, with unknown characters replaced by similar known ones.

        A model of small letters reads ``Café`` as ``cafe``.
        """
        text = self.folded(text)
        return text if self.config.task in CHECKS else fold_unknown(self.tokenizers.source, text)

    def check(self, text: str, anyway: bool = False) -> None:
        """Raise an InputError with the reason if the model cannot take this text.

        ``anyway`` accepts a text that the model can read but was not made for, such as a February 30.
        """
        self._fitting(self.tokenizers.source.encode(self._readable(text, anyway)))

    def unfit(self, text: str) -> str:
        """Return why the model was not made for a text, or None."""
        try:
            CHECKS.get(self.config.task, str)(text)
        except InputError as error:
            return str(error)
        return ""

    def _readable(self, text: str, anyway: bool = False) -> str:
        """Return a text as the model reads it."""
        if not isinstance(text, str):
            raise UserError(f"A text was expected, but {text!r} is of type {type(text).__name__}.")
        if len(text) > LONGEST_TEXT:
            raise InputError(f"The text has more than {LONGEST_TEXT:,} characters: cut it up.")
        check_unicode(text)
        if self.config.task in CHECKS and not anyway:
            CHECKS[self.config.task](text)
        read = self.read(text)
        if not read.strip():
            raise InputError("The line is empty: a text was expected.")
        try:
            self.tokenizers.source.check(read)
        except InputError as error:
            raise InputError(self._why_unknown(text, read, str(error))) from None
        return read

    def _why_unknown(self, text: str, read: str, why: str) -> str:
        """Return why a text has unknown tokens, in terms of the text that was given."""
        given = self.folded(text)
        if self.tokenizers.source.kind == "features":
            if FEATURE.search(given) is None:
                return (
                    f"{shown(text)} has no features: the model reads a word and its features, with a tab between them, "
                    "as in walk<TAB>V;PST."
                )
        elif "\t" in text:
            return (
                f"{shown(text)} has a tab, which separates columns, but the model reads one text: give one column "
                "(`seq2see predict --columns 1` reads the first one of a file)."
            )
        return why if read == given else f"{shown(given)}, read with similar characters: {why}"

    def _fitting(self, ids: list[int]) -> list[int]:
        """Return the ids of a text if they are not too many."""
        length, longest = len(ids), self.config.model.max_length
        if length > longest:
            raise InputError(f"The text has {length:,} tokens, but this model takes at most {longest:,}: cut it up.")
        return ids

    def fits(self, text: str) -> bool:
        """Whether a sentence is short enough to be read in one piece."""
        longest = min(MOST_TOKENS, self.config.model.max_length)
        source = self.tokenizers.source
        sure = longest - 3 if source.own else longest // 4  # a token of ours has at least one byte
        if len(text.encode()) <= sure:
            return True
        folded = self.folded(text)
        try:
            source.check(folded)
        except InputError:  # the whole text is refused later
            return True
        return len(source.encode(folded)) <= longest

    def _encoded(self, texts: Sequence[str]) -> tuple[dict[int, list[int]], dict[int, str], dict[int, str]]:
        """Return three values by index: the ids of the texts that the model takes, why others are refused,
        and what is read.
        """
        read: dict[int, str] = {}
        encoded: dict[int, list[int]] = {}
        reasons: dict[int, str] = {}
        for index, text in enumerate(texts):
            try:
                read[index] = self._readable(text)
            except InputError as error:
                reasons[index] = str(error)
        given = list(read.values())
        rows = [
            ids
            for first in range(0, len(given), ENCODED_AT_ONCE)
            for ids in self.tokenizers.source.encode_batch(given[first : first + ENCODED_AT_ONCE])
        ]
        for index, ids in zip(read, rows, strict=True):
            try:
                encoded[index] = self._fitting(ids)
            except InputError as error:
                reasons[index] = str(error)
        return encoded, reasons, read

    # --- searching ---

    def allowed(self, options: Options) -> Automaton | None:
        """Return the automaton of the allowed answers. The last one is kept for requests with the same constraints."""
        if not options.is_constrained:
            return None
        from seq2see.decoding import allowed

        if isinstance(options.only, allowed.Automaton):
            return options.only
        last = self._allowed
        if last is not None and _constraints(last[0]) == _constraints(options):
            return last[1]
        if options.only is not None:
            made = allowed.one_of(list(dict.fromkeys(map(self.folded, options.only))), self.target)
        elif options.pattern is not None:
            made = allowed.matching(options.pattern, self.target)
        else:
            made = allowed.beginning(str(options.prefix), self.target)
        self._allowed = options, made
        return made

    def answer(
        self,
        texts: Sequence[str],
        rules: DecodingConfig,
        phrases: list[list[Phrase]] | None = None,
        probabilities: bool = True,
    ) -> list[Answer]:
        """Answer unsplit texts; each answer must contain the given phrases."""
        automaton = None
        if phrases is not None:
            from seq2see.decoding import allowed

            most = self.config.model.max_length - 1
            most = most if rules.max_length is None else min(most, rules.max_length)
            automaton = allowed.holding(phrases, self.target.end, most)
        return self.search(texts, rules, 1, probabilities, automaton)

    def search(
        self,
        texts: Sequence[str],
        rules: DecodingConfig,
        n_best: int = 1,
        probabilities: bool = True,
        automaton: Automaton | None = None,
    ) -> list[Answer]:
        """Search for the answers to unsplit texts; a text that cannot be read, or has no answer, is refused."""
        self._check_length(rules)
        encoded, reasons, read = self._encoded(texts)
        results: list[Answer | None] = [None] * len(texts)
        for index, reason in reasons.items():
            results[index] = Answer(texts[index], None, error=reason)
        lengths = {place: len(ids) for place, ids in encoded.items()}
        batches = self.network.batches(lengths, rules, n_best, automaton is not None)

        def given(rows: list[int]) -> tuple[list[list[int]], Automaton | None]:
            return [encoded[row] for row in rows], None if automaton is None else automaton.select(rows)

        def best(engine: Engine, rows: list[int]) -> tuple[list[list[int]], list[str]]:
            sources, allowed = given(rows)
            found = engine.ids(sources, rules, allowed)
            return found, self.tokenizers.target.decode_batch(found)

        def several(engine: Engine, rows: list[int]) -> list[list[Hypothesis]]:
            sources, allowed = given(rows)
            return engine.search(sources, rules, n_best, allowed)

        if probabilities or n_best > 1:
            for rows, answers in self.network.searched(batches, several):
                for row, hypotheses in zip(rows, answers, strict=True):
                    if hypotheses:
                        results[row] = self._answer(texts[row], hypotheses, lengths[row])
        else:
            end = self.tokenizers.target.end
            for rows, found in self.network.searched(batches, best):
                for row, ids, output in zip(rows, *found, strict=True):
                    if not ids:
                        continue
                    remark = self._remark(texts[row], lengths[row], False, read[row])[0]
                    results[row] = Answer.plain(texts[row], output, ids, ids[-1] == end, remark)
        return [answer or Answer(text, None, error=NO_ANSWER) for text, answer in zip(texts, results, strict=True)]

    def _check_length(self, rules: DecodingConfig) -> None:
        """Refuse a requested length of answers that the model has no positions for."""
        asked, most = rules.max_length, self.config.model.max_length - 1
        if asked is not None and asked != self.config.decoding.max_length and asked > most:
            raise UserError(
                f"`max_length` is {asked:,}, but this model has positions for answers of at most {most:,} tokens: "
                "ask for fewer, or cut the text up."
            )

    # --- judging ---

    def _remark(
        self, text: str, length: int, thorough: bool = True, read: str | None = None
    ) -> tuple[str | None, bool]:
        """Return a remark (how a text was read, or how it differs from the training texts) and whether it differs.

        ``read`` is the text as the model reads it, if that is known.
        """
        if self.config.task in CHECKS:
            return None, False
        read = self.read(text) if read is None else read
        source, remarks, unlike = self.tokenizers.source, [], ""
        if source.letters is not None and read != self.folded(text):
            remarks.append(f"The input was read as {shown(read)}.")
        if self.confidence is not None:
            real = length - len(source.before) - len(source.after)
            familiar = self.confidence.familiar
            if self.config.decoding.sentences and (thorough or familiar.letters):
                from seq2see.documents.kept import unmarked

                bare = unmarked(text)
                read = read if bare is text else self.read(bare)
            unlike = (self._foreign(read) if thorough else "") or familiar.why_not(read, real, thorough)
            remarks += [unlike] if unlike else []
        return " ".join(remarks) or None, bool(unlike)

    def _foreign(self, text: str) -> str:
        """Return a sentence if a text is not in the language that the model reads; None if it may be."""
        if not self.config.decoding.sentences or self.confidence is None:
            return ""
        from seq2see.documents import languages

        if self._language is None:
            self._language = languages.read_by(self.confidence.familiar.surprise) or ""
        other = languages.other_than(self._language, text) if self._language else None
        return f"The input does not look like {self._language}: its words are {other}." if other else ""

    def judged(
        self, text: str, log_probabilities: Sequence[float], finished: bool, length: int | None = None
    ) -> tuple[float | None, str | None]:
        """Return the confidence of an answer, by the log-probabilities of its tokens, and the remark about its input.

        The confidence is None if it was not fitted, or if the input differs from the training inputs.
        ``length`` is the number of the input's ids, if it is known.
        """
        if length is None:
            length = len(self.tokenizers.source.encode(self.read(text)))
        remark, unlike = self._remark(text, length)
        if self.confidence is None or unlike:
            return None, remark
        return self.confidence(log_probabilities, finished), remark

    def _answer(self, text: str, hypotheses: list[Hypothesis], length: int) -> Answer:
        target, best = self.tokenizers.target, hypotheses[0]
        sure, remark = self.judged(text, best.log_probabilities, best.finished, length)
        tokens = zip(target.tokens(best.ids), best.log_probabilities, strict=True)
        return Answer(
            input=text,
            output=target.decode(best.ids),
            log_probability=best.log_probability,
            tokens=[Token(token, exp(value)) for token, value in tokens],
            alternatives=[Alternative(target.decode(h.ids), h.log_probability, h.score) for h in hypotheses[1:]],
            ids=best.ids,
            finished=best.finished,
            confidence=sure,
            remark=remark,
            score=best.score,
        )

    def raw(self, answer: Answer) -> str:
        """Write an answer with its special tokens: ``<sos>January 5, 1845<eos><pad><pad>``."""
        if answer.parts:
            return "".join(map(self.raw, answer.parts))
        length = dates.RAW_LENGTH if self.config.task == "dates" else 0
        return self.tokenizers.target.raw([self.tokenizers.target.start, *answer.ids], length)

    # --- alignment ---

    def links(self, pairs: list[tuple[str, str]]) -> list[list[tuple[Span, Span]]]:
        """Return which span of a text each span of its answer comes from.

        A nonsensical answer may be too long to be read again; it has no links.
        """
        good = [number for number, pair in enumerate(pairs) if self._can_align(pair)]
        found = dict(zip(good, self.align([pairs[number] for number in good]), strict=True))
        return [
            [(link.source_span, link.target_span) for link in found[number].links] if number in found else []
            for number in range(len(pairs))
        ]

    def _can_align(self, pair: Pair) -> bool:
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import check_pair

        try:
            check_pair(self.config.model, self.tokenizers, tidied([pair], self.folded)[0])
        except UserError:
            return False
        return True

    def align(self, pairs: Iterable[Pair | Answer]) -> list[Alignment]:
        """Return which word of its source each word of a target comes from, by cross-attention, with their positions.

        Positions are those in the texts as the model reads them (``folded``).
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import check_pair
        from seq2see.inspection.alignment import align

        sources, targets = [], []
        for number, pair in enumerate(pairs, 1):
            if isinstance(pair, Answer):
                if pair.error is not None:
                    raise UserError(f"Answer {number:,} cannot be aligned, since there is none: {pair.error}")
                if pair.parts or not pair.ids:
                    pair = (pair.input, str(pair.output))
                else:
                    sources.append(self.read(pair.input))
                    targets.append([self.tokenizers.target.start, *pair.ids])
            if not isinstance(pair, Answer):
                ((source, target),) = tidied([pair], self.folded, number)
                check_pair(self.config.model, self.tokenizers, (source, target), number)
                sources.append(source)
                targets.append(self.tokenizers.target.encode(target))
        return align(self.network.inner(), self.tokenizers, sources, targets)


def _constraints(options: Options) -> tuple[object, ...]:
    return options.only, options.pattern, options.prefix


def check_unicode(text: str) -> None:
    """Refuse half a character, which UTF-8 cannot write."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"The line is not UTF-8 text (from character {error.start + 1} on).") from None
