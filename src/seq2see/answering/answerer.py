"""The only way from texts to answers: Python, the command, the server, documents and the tracer all go it.

A text is read, its parts are searched together with those of other texts, and its answer is put together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain, repeat
from math import exp
from typing import TYPE_CHECKING, Any, cast

from seq2see import machine
from seq2see.answering import examples
from seq2see.answering.answer import Alternative, Answer, NoText, Reading, Token, as_date, check_unicode, or_withheld
from seq2see.answering.network import WINDOW, Network
from seq2see.answering.options import Options
from seq2see.config import Config, DecodingConfig
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import Hypothesis
from seq2see.errors import InputError, UserError, shown
from seq2see.evaluation.confidence import Confidence
from seq2see.storage.folder import Tokenizers
from seq2see.tasks import dates, human_dates
from seq2see.tokenizers.folding import fold_unknown, in_slots, out_of_slots, slots_of
from seq2see.tokenizers.symbols import FEATURE, joined
from seq2see.tokenizers.tokenizer import Tokenizer, fold

if TYPE_CHECKING:
    from seq2see.answering.links import Links
    from seq2see.decoding.allowed import Automata, Automaton
    from seq2see.decoding.hypothesis import Phrase

#: Texts that the library encodes together, on all cores. Another thread that decodes meanwhile waits for all of them.
ENCODED_AT_ONCE = 1024
NO_ANSWER = (
    "The search found no answer that its rules allow: change the text, what is required of the answer, or the rules "
    "under [decoding] in the model's config.toml."
)
LONGEST_TEXT = 1_000_000  # characters; a longer text is refused unread
ENOUGH_FITTED = 500  # a calibration with fewer pairs gives a warning
MANY = 256  # number of texts from which garbage collection is slow
MOST_TOKENS = 200  # tokens; a longer sentence is cut after a clause, since models learn from shorter ones

#: The checks of a task on its inputs, beyond their characters.
CHECKS: dict[str, Callable[[str], None]] = {
    "dates": dates.check,
    "human-dates": human_dates.check,
    examples.TASK: examples.check,
}

Input = str | Sequence[str] | Mapping[str, str]  # a text, or a word and its features


class Answerer:
    """Answers texts: ``answer`` does all of it, and the server calls its three steps one by one.

    The steps are ``reading`` (of each text), ``searched`` (the parts of many texts together) and ``joined``.
    """

    def __init__(self, config: Config, tokenizers: Tokenizers, network: Network, confidence: Confidence | None) -> None:
        self.config, self.tokenizers, self.network, self.confidence = config, tokenizers, network, confidence
        self._language: str | None = None  # that the model reads, found at first use; empty if unknown
        self._automata: Automata | None = None

    @property
    def target(self) -> Tokenizer:
        """How answers are cut."""
        return self.tokenizers.target

    # --- the pipeline ---

    def answer(self, inputs: Iterable[Input], options: Options) -> Iterator[Answer]:
        """Answer texts in order, some thousands together. A text that is refused has an ``error``."""
        return chain.from_iterable(self.windows(inputs, options))

    def windows(self, inputs: Iterable[Input], options: Options) -> Iterator[list[Answer]]:
        """Return the answers in lists. While a GPU searches, the next texts are tokenized and the last answers made."""
        self.check_options(options)

        def answered(window: list[str]) -> list[Answer]:
            with machine.uncollected() if len(window) > MANY else nullcontext():
                return self._answered(window, options)

        if not self.network.on_gpu:
            return map(answered, self.network.windows(map(self.text_of, inputs)))
        beam = options.rules(self.config.decoding).beam
        self.network.engine_for(WINDOW, beam, options.n_best, options.is_constrained)  # made before threads use it
        return (answers for _, answers in machine.ahead(answered, self.network.windows(map(self.text_of, inputs))))

    def _answered(self, texts: list[str], options: Options) -> list[Answer]:
        apart = self.splits(options) or options.strict
        readings = [self.reading(text, options) for text in texts] if apart else texts
        return self.joined(texts, readings, self.searched(parts_of(readings), options), options)

    def check_options(self, options: Options) -> None:
        """Refuse options that do not apply to this model."""
        if options.order is not None and self.config.task != "human-dates":
            raise UserError(
                f"`order` is for dates that people write, but the task of this model is {self.config.task}."
            )
        if options.like is not None:
            examples.check_model(self.config.task)
        least = options.min_confidence
        if least is None:
            return
        if self.confidence is None:
            raise UserError(
                f"`min_confidence` is {least}, but the confidence of this model is not "
                "fitted: `seq2see calibrate` fits it on pairs that were not in the training."
            )
        if least and self.confidence.fitted_on < ENOUGH_FITTED:  # above 0 is every answer
            logging.getLogger("seq2see").warning(
                "The confidence of this model was fitted on only %d pairs: fewer of the answers above %g may be right. "
                "`seq2see calibrate` fits it on more.", self.confidence.fitted_on, least,
            )  # fmt: skip

    def splits(self, options: Options) -> bool:
        """Whether texts are answered sentence by sentence, as documents."""
        plain = options.whole or options.n_best > 1 or options.is_constrained
        by_sentences = self.config.decoding.sentences and not plain
        return by_sentences or options.format is not None or options.terms is not None

    def reading(self, text: str, options: Options) -> Reading:
        """Read a text: as a document whose sentences are searched, as itself, or as an answer that refuses it."""
        if options.strict and isinstance(text, str) and (why := self.unseen(text)):
            return Answer(text, None, error=f"{why}: leave `strict` out to have it copied.")
        if not self.splits(options):
            return text
        from seq2see.answering import translation

        try:
            if not isinstance(text, str) or not text.strip():
                self.check(text)  # raises
            return translation.read(text if options.format else text.strip(), options.format or "text")
        except UserError as error:
            if not isinstance(text, str):
                raise
            return Answer(text, None, error=str(error))

    def searched(self, parts: Sequence[Any], options: Options) -> list[Any]:
        """Search for the answers to the sentences of documents, or to texts that are not split."""
        rules = options.rules(self.config.decoding)
        sure = options.probabilities or options.min_confidence is not None
        if options.like is not None:
            asked = [(options.like, text) for text in parts]
            only = self.allowed(options)

            def search(several: list[str]) -> list[Answer]:
                return self.search(several, rules, options.n_best, True, only)

            return examples.answered(asked, self.config.model.max_length, search, self.confidence)
        if self.splits(options):
            from seq2see.answering.translation import translate

            return translate(parts, self, rules, options.terms, sure)
        return self.search(parts, rules, options.n_best, sure, self.allowed(options))

    def joined(
        self, texts: Sequence[str], readings: Sequence[Reading], found: Sequence[Any], options: Options
    ) -> list[Answer]:
        """Put the answers to texts together, as they were read, and read them as their task does."""
        if self.splits(options):
            from seq2see.answering.translation import put_together

            found = put_together(texts, readings, found)
        elif len(found) < len(texts):
            remaining = iter(found)
            found = [one if isinstance(one, Answer) else next(remaining) for one in readings]
        if self.config.task == "human-dates":
            found = [as_date(answer, options.order) for answer in found]
        return [*map(or_withheld, found, repeat(options.min_confidence))]

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
        """Return a text as the model reads it: folded, with unknown characters replaced by similar known ones, or slots.

        A model of small letters reads ``Café`` as ``cafe``. What is done to a text before the search belongs here;
        what is done to its answer after it, in ``written``.
        """
        return self._slotted(text)[0]

    def _slotted(self, text: str) -> tuple[str, dict[str, str]]:
        """Return a text as the model reads it, and which unknown symbol each slot in it holds."""
        given, text = text, self.folded(text)
        if self.config.task in CHECKS:
            return text, {}
        source, known = self.tokenizers.source, fold_unknown(self.tokenizers.source, text)
        if "\t" in given or (source.kind == "features" and FEATURE.search(text) is None):
            return known, {}  # no symbol is new here: a column or a feature is amiss
        return in_slots(source, self.target, known)

    def written(self, texts: Sequence[str], rows: Sequence[list[int]]) -> list[str]:
        """Return the answers to texts by their ids; unknown symbols of a text come back from their slots."""
        found = self.target.decode_batch(rows)
        if not slots_of(self.target):
            return found
        return [out_of_slots(answer, self._slotted(text)[1]) for text, answer in zip(texts, found, strict=True)]

    def unseen(self, text: str) -> str:
        """Say which symbols of a text are in no vocabulary and take slots; empty if there are none."""
        held = self._slotted(text)[1].values()
        return f"The model has never seen {', '.join(map(repr, held))}" if held else ""

    def check(self, text: str, anyway: bool = False) -> None:
        """Raise an InputError with the reason if the model cannot take this text.

        ``anyway`` accepts a text that the model can read but was not made for, such as a February 30.
        """
        self._fitting(self.tokenizers.source.encode(self._readable(text, anyway)))

    def unfit(self, text: str) -> str:
        """Return why the model was not made for a text; empty if it was."""
        try:
            CHECKS.get(self.config.task, str)(text)
        except InputError as error:
            return str(error)
        return ""

    def _readable(self, text: str, anyway: bool = False) -> str:
        """Return a text as the model reads it."""
        if not isinstance(text, str):
            raise UserError(f"A text was expected, but {text!r} is of type {type(text).__name__}.")
        if isinstance(text, NoText):
            raise InputError(text.reason)
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
        """Return by index the ids of the texts that the model takes, why others are refused, and what is read."""
        read, encoded, reasons = dict[int, str](), dict[int, list[int]](), dict[int, str]()
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
        """Return the automaton of the allowed answers. Those of the last constraints are kept."""
        if not options.is_constrained:
            return None
        from seq2see.decoding import allowed

        if isinstance(options.only, allowed.Automaton):
            return options.only
        self._automata = self._automata or allowed.Automata(self.target)
        only = None if options.only is None else tuple(map(self.folded, options.only))
        return self._automata.of(only, options.pattern, options.prefix)

    def replies(
        self, texts: Sequence[str], rules: DecodingConfig, phrases: list[list[Phrase]] | None, probabilities: bool
    ) -> list[Answer]:
        """Search for the answers to single sentences; each answer must contain the given phrases."""
        if phrases is None:
            return self.search(texts, rules, 1, probabilities)
        from seq2see.decoding.allowed import holding

        most = self.config.model.max_length - 1
        most = most if rules.max_length is None else min(most, rules.max_length)
        return self.search(texts, rules, 1, probabilities, holding(phrases, self.target.end, most))

    def links(self, pairs: list[tuple[str, str]]) -> Links:
        """Return which span of a text each span of its answer comes from."""
        from seq2see.answering.links import links

        return links(self, pairs)

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
            return [encoded[row] for row in rows], automaton and automaton.select(rows)

        def best(engine: Engine, rows: list[int]) -> tuple[list[list[int]], list[str]]:
            sources, allowed = given(rows)
            found = engine.ids(sources, rules, allowed)
            return found, self.written([texts[row] for row in rows], found)

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

    def _remark(self, text: str, length: int, thorough: bool = True, read: str = "") -> tuple[str | None, bool]:
        """Return a remark (how a text was read, or how it differs from the training texts) and whether it differs.

        ``read`` is the text as the model reads it, if that is known.
        """
        if self.config.task in CHECKS:
            return None, False
        read = read or self.read(text)
        source, remarks, unlike = self.tokenizers.source, [], ""
        if source.letters is not None and read != (given := self.folded(text)):
            unlike = self.unseen(text)
            if (known := fold_unknown(source, given)) != given:
                remarks.append(f"The input was read as {shown(known)}.")
            remarks += [f"{unlike}, and copies what it does not know."] if unlike else []
        if self.confidence is not None and not unlike:
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
        """Return a sentence if a text is not in the language that the model reads; empty if it may be."""
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
        outputs = self.written([text] * len(hypotheses), [one.ids for one in hypotheses])
        others = zip(outputs[1:], hypotheses[1:], strict=True)
        return Answer(
            input=text,
            output=outputs[0],
            log_probability=best.log_probability,
            tokens=[Token(token, exp(value)) for token, value in tokens],
            alternatives=[Alternative(output, one.log_probability, one.score) for output, one in others],
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


def parts_of(readings: Sequence[Reading]) -> list[Any]:
    """Return the parts of texts that are searched together: their sentences, or the texts themselves."""
    some = [one for one in readings if not isinstance(one, Answer)]
    return [part for one in some for part in (one.sentences if hasattr(one, "sentences") else (one,))]
