"""The CTranslate2 engine: the fastest for a start and for few inputs on a CPU. Nothing here imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import ctranslate2

from seq2see import machine
from seq2see.config import DecodingConfig, ModelConfig
from seq2see.decoding.engines import SMALL
from seq2see.decoding.hypothesis import PAPER, Hypothesis, Special
from seq2see.errors import FolderError
from seq2see.stopping import go_on

if TYPE_CHECKING:
    from seq2see.decoding.allowed import Automaton

BATCH = 256  # most inputs of a worker at a time
#: A worker gets fewer long inputs, so many tokens at a time: what it computes of them stays in the processor's cache.
LONG, TOKENS = 64, 4096
FEW = 1024  # target tokens up to which all their logits are cheaper than a second pass over long inputs
EACH = 8  # inputs per worker from which several workers of one thread are faster than one of several threads

#: Without a length penalty CTranslate2 keeps only the likeliest finished answers, which are the short ones. With this one
#: it stops when ``beam`` answers have ended, and they can be ranked by the paper's penalty, which it lacks.
ALMOST_NO_PENALTY = 1e-6

ALIVE: WeakSet[CTranslate2Engine] = WeakSet()  # the engines of this process


class CTranslate2Engine:
    """Searches with a converted model.

    A beam of CTranslate2 stops when ``beam`` answers have ended, even if a likelier one is still open. So the
    greedy answer takes part in the ranking: the best is then nearly always that of our search, and never
    worse than greedy. The lower ranks may differ.
    """

    def __init__(
        self,
        path: Path,
        tokens: tuple[Sequence[str], Sequence[str]],
        special: Special,
        config: ModelConfig,
        compute_type: str = "default",
        inputs: int = 1,
    ) -> None:
        self.path, self.compute_type = path, compute_type
        self.small = config.d_model < SMALL
        # independent workers; threads that share each product
        self.workers, self.threads = machine.workers(), machine.free_cores()
        self.translators: dict[int, ctranslate2.Translator] = {}  # by the number of workers
        self.making = Lock()  # two batches at a time need one translator, not two
        self.source_tokens, self.target_tokens = tokens
        self.ids_of = {token: number for number, token in enumerate(self.target_tokens)}
        self.special, self.max_length = special, config.max_length
        self.name = f"ctranslate2, {self._translator(inputs).compute_type}"
        ALIVE.add(self)

    def leave_translators(self) -> None:
        """Make new translators in a forked process.

        The threads of the old ones do not exist there, so they would never answer, and deleting them would
        hang: an extra reference keeps them.
        """
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.translators))
        self.translators, self.making = {}, Lock()

    def _translator(self, inputs: int) -> ctranslate2.Translator:
        """Return the faster translator for this number of inputs: threads that share each product, or
        independent workers.

        Threads that share a product wait for each other, so they pay only for a single input whose products are large.
        """
        apart = self.small or inputs >= EACH * self.workers
        workers = self.workers if apart else 1
        with self.making:
            if workers not in self.translators:
                try:
                    self.translators[workers] = ctranslate2.Translator(
                        str(self.path),
                        compute_type=self.compute_type,
                        inter_threads=workers,
                        intra_threads=1 if apart else self.threads,
                    )
                except (RuntimeError, ValueError) as error:
                    raise FolderError(
                        f"{self.path.parent.name}/{self.path.name} cannot be read by CTranslate2 ({error}): "
                        "remove it, and it is made again."
                    ) from None
        return self.translators[workers]

    def _batch(self, sources: Sequence[Sequence[object]]) -> int:
        """Return the batch size of a worker for these inputs."""
        inputs, longest = len(sources), max(map(len, sources), default=0)
        most = min(BATCH, -(-inputs // self.workers)) if inputs >= EACH * self.workers else inputs
        return most if longest <= LONG else min(most, max(1, TOKENS // longest))

    def ids(
        self, sources: Sequence[Sequence[int]], rules: DecodingConfig = PAPER, allowed: Automaton | None = None
    ) -> list[list[int]]:
        """Return the best answer's ids to each source."""
        assert allowed is None, "Network.engine_for takes torch for constrained answers"
        assert min(map(len, sources)) > 0, "CTranslate2 would not answer an empty source"
        named = self._named(sources)
        lengths = list(map(len, sources))
        limit = {length: rules.limit(length, self.max_length) for length in set(lengths)}
        beam, limits = rules.beam, [limit[length] for length in lengths]
        if beam > 1 and rules.stopping == "full":
            return self._until_full(named, limits, rules)
        found = self._translate(named, max(limits), rules)
        # The beginning of a greedy answer does not depend on its limit.
        if beam == 1:
            return [
                self._ended(self._numbers(row[0][:most]), most, rules)
                for (row, _), most in zip(found, limits, strict=True)
            ]
        greedy = [(row[0][:most], totals[0]) for (row, totals), most in zip(found, limits, strict=True)]
        cut = [row for row, ((whole, _), most) in enumerate(zip(found, limits, strict=True)) if len(whole[0]) > most]
        if cut:  # their totals belong to the longer answers
            ids = [self._numbers(greedy[row][0]) for row in cut]
            for row, values in zip(cut, self.score([sources[row] for row in cut], ids, rules), strict=True):
                greedy[row] = (greedy[row][0], sum(values))
        results: list[list[int]] = [[] for _ in sources]
        rows = list(range(len(sources)))
        most = max(limits)
        while rows:
            again = []
            for row, (tokens, totals) in zip(
                rows, self._translate([named[r] for r in rows], most, rules, beam), strict=True
            ):
                # At its limit, an answer competes with unfinished ones.
                if limits[row] < most and max(map(len, tokens)) >= limits[row]:
                    again.append(row)
                    continue
                ranked = [*zip(tokens, totals, strict=True), greedy[row]]
                best, _ = max(ranked, key=lambda one: one[1] / rules.divisor(len(one[0])))
                results[row] = self._ended(self._numbers(best), limits[row], rules)
            most = max((limits[row] for row in again), default=0)
            rows = again
        return results

    def _until_full(self, named: list[list[str]], limits: Sequence[int], rules: DecodingConfig) -> list[list[int]]:
        """Search with a beam that stops when ``beam`` answers have ended, which is CTranslate2's own rule."""
        results: list[list[int]] = [[] for _ in named]
        for limit in {*limits}:
            rows = [row for row, most in enumerate(limits) if most == limit]
            # A forced end has probability 1, so the last token is not searched for.
            most = max(1, limit - rules.forced_end)
            found = self._translate([named[row] for row in rows], most, rules, rules.beam, penalty=rules.length_penalty)
            for row, (answers, scores) in zip(rows, found, strict=True):
                ranked = []
                for tokens, score in zip(answers, scores, strict=True):
                    ids, total = self._numbers(tokens), score * rules.divisor(len(tokens))
                    if rules.forced_end and len(ids) < limit and not self._is_end(ids[-1], rules):
                        ids.append(self.special.end)
                    ranked.append((total / rules.divisor(len(ids)), ids))
                results[row] = self._ended(max(ranked, key=lambda one: one[0])[1], limit, rules)
        return results

    def _is_end(self, token: int, rules: DecodingConfig) -> bool:
        return token == self.special.end or token in rules.other_ends

    def search(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        n_best: int = 1,
        allowed: Automaton | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the best answer to each source with the log-probability of each token."""
        assert n_best == 1, "the lower ranks may differ from ours: Network.engine_for takes torch for them"
        forced = rules.min_length or rules.forced_end or self.special.forced
        is_plain = rules.beam == 1 and not (rules.suppressed or rules.no_repeat or forced)
        if is_plain and len(self.target_tokens) <= FEW and max(map(len, sources)) > LONG:
            return self._with_logits(sources, rules)
        rows = self.ids(sources, rules, allowed)
        return [
            [Hypothesis(row, values, sum(values) / rules.divisor(len(row)), self._is_end(row[-1], rules))]
            for row, values in zip(rows, self.score(sources, rows, rules), strict=True)
        ]

    def _with_logits(self, sources: Sequence[Sequence[int]], rules: DecodingConfig) -> list[list[Hypothesis]]:
        """Search greedily, and read the log-probabilities off the logits of the same pass."""
        import numpy as np  # short inputs are answered without it, for a fast start

        limits = [rules.limit(len(source), self.max_length) for source in sources]
        logits: list[Any] = []
        rows = self._translate(self._named(sources), max(limits), rules, logits=logits)
        found = []
        for (tokens, _), steps, most in zip(rows, logits, limits, strict=True):
            ids = self._numbers(tokens[0][:most])
            x = np.stack([np.asarray(step, dtype=np.float32).reshape(-1) for step in steps[: len(ids)]])  # (T, V)
            x -= x.max(-1, keepdims=True)
            values = (x[range(len(ids)), ids] - np.log(np.exp(x).sum(-1))).tolist()
            found.append([Hypothesis(ids, values, sum(values) / rules.divisor(len(ids)), self._is_end(ids[-1], rules))])
        return found

    def _ended(self, row: list[int], limit: int, rules: DecodingConfig) -> list[int]:
        """Add the end to an answer that was cut at its limit, if the rules say so."""
        if rules.forced_end and len(row) == limit and not self._is_end(row[-1], rules):
            return [*row[:-1], self.special.end]
        return row

    def score(
        self, sources: Sequence[Sequence[int]], answers: Sequence[list[int]], rules: DecodingConfig = PAPER
    ) -> list[list[float]]:
        """Return the log-probability of each token of given answers; forced tokens have probability 1."""
        end = self.special.end
        targets = [self._tokens_of(row[:-1] if row[-1] == end else row, self.target_tokens) for row in answers]
        # It scores every target with an <eos> after it; an answer cut at its limit has none.
        scored = self._translator(len(sources)).score_batch(
            self._named(sources), targets, max_input_length=0, max_batch_size=self._batch(sources)
        )
        found = [result.log_probs[: len(row)] for row, result in zip(answers, scored, strict=True)]
        for source, row, values in zip(sources, answers, found, strict=True):
            if self.special.forced == tuple(row[: len(self.special.forced)]):
                values[: len(self.special.forced)] = [0.0] * len(self.special.forced)
            if rules.forced_end and len(row) == rules.limit(len(source), self.max_length):
                values[-1] = 0.0
        return found

    def _translate(
        self,
        sources: list[list[str]],
        most: int,
        rules: DecodingConfig,
        beam: int = 1,
        penalty: float = ALMOST_NO_PENALTY,
        logits: list[Any] | None = None,
    ) -> list[tuple[list[list[str]], list[float]]]:
        go_on()
        forced = self._tokens_of(self.special.forced, self.target_tokens)
        out = [[token] for token in self._tokens_of(rules.suppressed, self.target_tokens)]
        results = self._translator(len(sources)).translate_batch(
            sources,
            target_prefix=[forced] * len(sources) if forced else None,
            suppress_sequences=out or None,
            no_repeat_ngram_size=rules.no_repeat,
            beam_size=beam,
            num_hypotheses=beam,
            length_penalty=penalty,
            min_decoding_length=rules.min_length,
            end_token=[*map(self.target_tokens.__getitem__, (self.special.end, *rules.other_ends))],
            max_decoding_length=most,
            max_input_length=0,
            return_end_token=True,
            # Greedy answers are not ranked, and scores cost a softmax per token.
            return_scores=rules.beam > 1,
            return_logits_vocab=logits is not None,
            max_batch_size=self._batch(sources),
        )
        if logits is not None:
            logits += [result.logits[0] for result in results]
        return [(result.hypotheses, result.scores) for result in results]

    def _named(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        return [self._tokens_of(source, self.source_tokens) for source in sources]

    @staticmethod
    def _tokens_of(ids: Iterable[int], names: Sequence[str]) -> list[str]:
        return list(map(names.__getitem__, ids))

    def _numbers(self, tokens: list[str]) -> list[int]:
        return list(map(self.ids_of.__getitem__, tokens))


def _after_fork() -> None:
    for engine in ALIVE:
        engine.leave_translators()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
