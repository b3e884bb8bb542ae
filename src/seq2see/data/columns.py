"""Which columns of a table are the source and the target: by name, by number, or because there are only two."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from seq2see.data.formats import Row, Table
from seq2see.errors import UserError, shown, suggest
from seq2see.tokenizers.symbols import with_features

LONGEST_NUMBER = 9  # digits of a column
HEAD = 1000  # rows from which the number of columns is found
NUMBER = re.compile(r"[-+]?[0-9]+([.,][0-9]+)?")
NAME = re.compile(r"[^\W\d][\w .()/-]{0,39}")
FEATURES = re.compile(r"[^\s;|]+([;|][^\s;|]+)+")  # V;PST;3 or Case=Dat|Number=Sing
NOTE = re.compile(r"CC[- ]BY|tatoeba\.org", re.IGNORECASE)  # the third column of Tatoeba's exports

#: Usual names of columns. A first row is a header if two of its cells are such names.
HEADERS = {
    "source", "target", "src", "tgt", "trg", "input", "output", "from", "to", "question", "answer", "x", "y",
    "en", "de", "fr", "es", "it", "nl", "pt", "ru", "eng", "deu", "ger", "fra", "fre", "spa", "ita", "nld", "por", "rus",
    "english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian", "chinese", "japanese",
    "id", "idx", "lemma", "form", "features", "tags", "pronunciation", "phonemes", "phones", "grapheme", "graphemes",
    "source_text", "target_text", "input_text", "output_text",
}  # fmt: skip


def checked(columns: Any) -> tuple[str, str]:
    """Return the two requested columns: ``("english", "french")``, or the command's ``english,french``."""
    if isinstance(columns, str) and columns.count(",") == 1:
        source, _, target = columns.partition(",")
        columns = (source.strip(), target.strip())
    if not isinstance(columns, tuple | list) or len(columns) != 2 or not all(map(str, columns)):
        raise UserError(
            f"`columns` is {columns!r:.60}: two names or numbers were expected, of the source and of the target."
        )
    if columns[0] == columns[1]:
        raise UserError(f"`columns` names {shown(str(columns[0]))} as the source and as the target: name two columns.")
    return columns[0], columns[1]


@dataclass(frozen=True)
class Chosen:
    """The positions of the texts in a row; each is followed by its columns of features."""

    width: int
    source: list[int]
    target: list[int]
    names: list[str] = field(default_factory=list)  # of the two, if they have names
    told: str = ""

    @classmethod
    def first_two(cls) -> Chosen:
        """The only two columns."""
        return cls(2, [0], [1])

    def texts(self, row: Sequence[str]) -> tuple[str, str]:
        """Return the source and the target of a row."""
        if self.width == 2 and len(self.source) == len(self.target) == 1:
            return row[self.source[0]], row[self.target[0]]
        source, target = (with_features([row[place] for place in places]) for places in (self.source, self.target))
        return source, target


def opened(table: Table, name: str, columns: tuple[str, str] | None, or_two: bool) -> tuple[Iterator[Row], Chosen]:
    """Return the rows of a table without its header, and the positions of the texts in them."""
    head = list(islice(table.rows, HEAD))
    cells = [row for _, row in head if isinstance(row, list)]
    counts = Counter(len(row) for row in cells if len(row) > 1)
    width = len(table.names) or (counts.most_common(1)[0][0] if counts else 2)
    names = table.names
    asked = None if columns is None else checked(columns)
    if not names and cells and (is_header(cells, width) or _is_named(cells[0], asked)):
        names = [cell.strip() for cell in cells[0]]
        place = next(place for place, (_, row) in enumerate(head) if isinstance(row, list))
        del head[place]
    if asked is not None and or_two and width == 2:
        asked = None
    if asked is not None:
        source, target = (positions(str(one), names, width, name) for one in asked)
    else:
        source, target = ([place] for place in _two(table, names, width, name, cells))
    both = [names[places[0]] for places in (source, target)] if names else []
    told = " → ".join(
        "+".join(repr(names[place]) if names else str(place + 1) for place in places) for places in (source, target)
    )
    return chain(head, table.rows), Chosen(width, source, target, both, told if width > 2 else "")


def is_header(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the first row is a header: two of its cells are usual names, or it is above numbers."""
    first = [cell.strip() for cell in rows[0]]
    known = [cell.lower() for cell in first if cell.lower() in HEADERS]
    if len(first) != width or len(set(first)) < width:
        return False
    if len(set(known)) >= 2:
        return True
    below = [row for row in rows[1:] if len(row) == width]
    return (
        len(below) >= 3
        and all(map(NAME.fullmatch, first))
        and any(all(NUMBER.fullmatch(row[place].strip()) for row in below) for place in range(width))
    )


def _is_named(first: Sequence[str], asked: tuple[str, str] | None) -> bool:
    """Whether a row names the requested columns."""
    cells = {cell.strip() for cell in first}
    return asked is not None and all(
        part in cells and not part.isdecimal() for one in asked for part in _parts(str(one), list(cells))
    )


def _parts(one: str, names: Sequence[str]) -> list[str]:
    """Return a column and the columns of features after it: ``lemma+tags``."""
    return [one] if one in names else [part.strip() for part in one.split("+")]


def positions(one: str, names: list[str], width: int, name: str) -> list[int]:
    """Return the positions of the requested columns, given by name or by number."""
    places = []
    for part in _parts(one, names):
        if part in names:
            places.append(names.index(part))
        elif part.isdecimal():
            if len(part) > LONGEST_NUMBER or not 1 <= int(part) <= width:
                number = part if len(part) <= LONGEST_NUMBER else f"{part[:LONGEST_NUMBER]}…"
                raise UserError(f"`columns` names column {number}, but {name} has {width}, counted from 1.")
            places.append(int(part) - 1)
        elif names:
            raise UserError(f"`columns` names {shown(part)}, which {name} does not have. {suggest(part[:100], names)}")
        else:
            raise UserError(
                f"`columns` names {shown(part)}, but {name} has no header: give numbers, 1 to {width}, as in "
                "`columns` 1,2."
            )
    return places


def inflected(names: list[str], full: Sequence[Sequence[str]]) -> str:
    """Return the columns of an inflection table, ``lemma+features,form``; empty if it is something else."""
    labels = names or [str(place + 1) for place in range(len(full[0]) if full else 0)]
    tagged = [
        label
        for place, label in enumerate(labels)
        if full and sum(FEATURES.fullmatch(row[place].strip()) is not None for row in full) > len(full) / 2
    ]
    if len(labels) != 3 or len(tagged) != 1:
        return ""
    lemma, form = (label for label in labels if label not in tagged)
    return f"{lemma}+{tagged[0]},{form}"


def _two(table: Table, names: list[str], width: int, name: str, cells: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Choose the columns if the choice is clear: named source and target, the only two, or the only two with texts."""
    if "source" in names and "target" in names:
        return names.index("source"), names.index("target")
    if width == 2:
        return 0, 1
    if len(table.texts) == 2:
        source, target = (names.index(one) for one in table.texts)
        return source, target
    full = [row for row in cells if len(row) == width]
    if width == 3 and not names and all(NOTE.search(row[2]) for row in full):
        return 0, 1
    listed = f"({', '.join(names)})" if names else f"(the first row is {' | '.join(full[0])[:80]})"
    example = inflected(names, full) or (",".join(names[-2:]) if names else "1,2")
    raise UserError(
        f"{name} has {width} columns {listed}, and two were expected: say which are the source and the target, by name "
        f"or number, as in `columns` {example}."
    )
