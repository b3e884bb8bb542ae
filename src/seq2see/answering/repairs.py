"""Which repairs of texts and answers a model gains by, as its answers to held-out pairs show."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING

from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Answerer
from seq2see.answering.options import Options
from seq2see.answering.translation import Attempt
from seq2see.config import REPAIRS, DecodingConfig, Repair
from seq2see.documents.kept import Read, regrouped
from seq2see.evaluation.metrics import sentence_chrf

if TYPE_CHECKING:
    from seq2see.evaluation.evaluate import Pair

MOST = 1000  # pairs that are answered
CHANCE = 0.05  # largest probability of as many better answers, if a repair changes them at random


def proven(answerer: Answerer, pairs: Sequence[Pair], rules: DecodingConfig) -> tuple[Repair, ...]:
    """Return the repairs with which significantly more answers to the pairs become better than worse (sign test)."""

    def answers(sources: list[str], *repairs: Repair) -> list[Answer]:
        as_asked = copy(answerer)
        as_asked.config = replace(answerer.config, decoding=rules.but(repairs=repairs))
        return [*as_asked.answer(sources, Options(probabilities=False))]

    wanted = dict(pairs[:: -(-len(pairs) // MOST) or 1])
    sources = list(wanted)
    plain = answers(sources)
    found: list[Repair] = []
    for repair in REPAIRS:
        some = [answer for answer in plain if answer.error is None and _concerns(repair, answer)]
        gains = [
            sentence_chrf(new.output or "", wanted[old.input]) - sentence_chrf(old.output or "", wanted[old.input])
            for old, new in zip(some, answers([one.input for one in some], repair), strict=True)
        ]
        if _is_significant(sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)):
            found.append(repair)
    return tuple(found)


def _concerns(repair: Repair, answer: Answer) -> bool:
    """Whether a repair may change this answer."""
    read = Read.of(answer.input, repairs=(repair,))
    output = answer.output or ""
    if read.text != answer.input or Attempt(read, answer, output).faults:
        return True
    return repair == "numbers" and regrouped(output, read.text) != output


def _is_significant(better: int, worse: int) -> bool:
    count = better + worse
    return sum(comb(count, k) for k in range(better, count + 1)) < CHANCE * (1 << count)
