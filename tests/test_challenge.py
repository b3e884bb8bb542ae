"""The challenge of en-fr: inputs as people type them, with what a program can check of each answer.

A line of ``challenge-en-fr.jsonl`` has a text and may say what its answer must hold: ``keep`` (numbers, names, addresses,
signs), ``says`` (expressions that must all be found, in any case), ``sentences`` (how many), ``upper`` (capitals).
In addition, every answer must differ from the text, must have ended, and must neither be English nor loop.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import seq2see
from seq2see.data.language import guess

CHALLENGE = Path(__file__).with_name("challenge-en-fr.jsonl")
CHECKS = 97  # the share of the checks that hold, in whole percent
INPUTS = 90  # the share of the inputs of which every check holds, in whole percent


def _joined(text: str) -> str:
    """Take the separators out of numbers, so that 12,345 and 12 345 and 2.80 and 2,80 are the same."""
    return re.sub(r"(?<=\d)[.,\s](?=\d)", "", text)


def _kept(item: str, answer: str) -> bool:
    """Whether an answer holds a number, alone and not inside a longer one, or another item as it is."""
    if item[0].isdigit() and re.fullmatch(r"[\d.,]+", item):
        alone = rf"(?<!\d){re.escape(_joined(item))}(?!\d)"
        return bool(re.search(alone, answer) or re.search(alone, _joined(answer)))
    return item in answer


def checks(row: dict[str, Any], answer: str, finished: bool) -> dict[str, bool]:
    """Make every check of one answer."""
    words = re.findall(r"\w+", answer.lower())
    made = {
        "not English": guess(answer)
        != "English",  # the guess knows too few words to tell French from Dutch in a short text
        "not copied": answer.lower() != row["text"].lower(),
        "no loop": finished
        and not any(
            words[start : start + size]
            == words[start + size : start + 2 * size]
            == words[start + 2 * size : start + 3 * size]
            for size in range(1, 5)
            for start in range(len(words) - 3 * size + 1)
        )
        and not re.search(r"([^\W\d])\1{3}", answer),
    }
    for item in row.get("keep", ()):
        made[f"keeps {item}"] = _kept(item, answer)
    for item in row.get("says", ()):
        made[f"says {item}"] = bool(re.search(item, answer, re.IGNORECASE))
    if "sentences" in row:
        ends = re.findall(r"[.!?…]+[\"»”)]*(?=\s|$)", re.sub(r"\s+([?!])", r"\1", answer))
        made["as many sentences"] = len(ends) == row["sentences"]
    if row.get("upper"):
        made["capitals"] = answer.isupper()
    return made


def test_the_checks_notice() -> None:
    row = {
        "text": "Call 911 now!",
        "keep": ["911", "{name}", "2.80"],
        "says": ["appel"],
        "sentences": 1,
        "upper": True,
    }
    good = "APPELLE LE 911 POUR {name} ET 2,80 !"
    assert [name for name, held in checks(row, good, True).items() if not held] == ["capitals"]
    bad = "The call is for the 9110 and 28. You go you you you."
    assert not any(held for name, held in checks(row, bad, True).items() if name != "not copied")
    assert not checks(row, row["text"], True)["not copied"]
    assert not checks(row, "Appelle", False)["no loop"]
    assert not checks(row, "TBBBBB", True)["no loop"]


@pytest.mark.heavy
def test_the_challenge() -> None:
    rows = [json.loads(line) for line in CHALLENGE.read_text(encoding="utf-8").splitlines()]
    answers = seq2see.load("en-fr").answers([row["text"] for row in rows])
    made = [checks(row, answer.output, answer.finished) for row, answer in zip(rows, answers, strict=True)]
    failures = [
        f"{row['text']} → {answer.output}   (not: {', '.join(name for name, held in each.items() if not held)})"
        for row, answer, each in zip(rows, answers, made, strict=True)
        if not all(each.values())
    ]
    held = sum(sum(each.values()) for each in made)
    total = sum(map(len, made))
    whole = len(rows) - len(failures)
    report = "\n".join(
        [f"{held} of {total} checks hold, {whole} of {len(rows)} inputs are whole.", *failures]
    )
    print(report)
    assert 100 * held // total >= CHECKS, report
    assert 100 * whole // len(rows) >= INPUTS, report
