"""Every regular expression of the package takes a time that grows with the length of a text, not with its square.

All modules are walked: patterns that they hold (also in tables), and patterns that stand in a call of ``re`` within a
function. Hostile texts are made from each pattern: its characters and beginnings, repeated, and what makes it fail after
them.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import seq2see
from conftest import sweep
from seq2see.documents import formats as documents
from seq2see.errors import UserError

ROOT = Path(seq2see.__file__).parent
ANCHORED = {"match", "fullmatch"}
METHODS = {"search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
#: Files that read only what ships with the package.
OURS = {"page/single_file.py", "page/live.py"}
#: Calls whose pattern is made of what is given, and why that is no danger.
MADE = {
    "patterns.py",  # one character, or a pattern that is only compiled, never run
    "trace.py",  # a glob by fnmatch, whose stars do not look back; a server takes 100 characters
    "terms.py",  # alternatives without a repetition but of white space between words
    "kept.py",  # alternatives of words
    "runs.py",  # one sign
    "translation.py",  # one term
    "human_dates.py",  # names of months
}
SHORT = 1500  # characters of the shorter text
FLOOR = 0.004  # seconds below which growth cannot be told from noise: a quadratic pattern takes longer
CEILING = 0.5  # seconds that no pattern of linear time takes over so short a text; a longer one might take minutes


class Use(NamedTuple):
    """A pattern and how it is applied."""

    where: str
    pattern: str
    flags: int
    anchored: bool


def names() -> list[str]:
    return [name for path in sorted(ROOT.rglob("*.py")) if (name := path.relative_to(ROOT).as_posix()) not in OURS]


@cache
def source(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


@cache
def methods_of() -> dict[tuple[str, str], set[str]]:
    """Return by which methods the pattern of a module with a name is applied, anywhere; other uses count as a search."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in names():
        tree = source(path)
        owners = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                above = parents[node]
                method = above.attr if isinstance(above, ast.Attribute) and above.attr in METHODS else "search"
                if isinstance(above, ast.Attribute) and above.attr == "pattern":
                    continue
                found.setdefault(owners.get(node.id, (module_of(path), node.id)), set()).add(method)
    return found


def module_of(path: str) -> str:
    return "seq2see." + path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def held(name: str) -> Iterator[Use]:
    """Find the patterns that a module and its classes hold."""
    module_name = module_of(name)
    if module_name.endswith("__main__"):
        return
    try:
        module = importlib.import_module(module_name)
    except ImportError:  # of an extra, or of a GPU
        return
    others = {  # patterns of another module are measured there
        alias.asname or alias.name
        for node in ast.walk(source(name))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    places: list[tuple[str, Any]] = [pair for pair in vars(module).items() if pair[0] not in others]
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module_name:
            places += vars(value).items()
    for key, value in places:
        for pattern in patterns_in(value):
            anchored = methods_of().get((module_name, key), {"search"}) <= ANCHORED
            yield Use(f"{name} {key}", pattern.pattern, pattern.flags, anchored)


def patterns_in(value: Any, depth: int = 3) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from patterns_in(one, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from patterns_in(one, depth - 1)


def called(name: str) -> Iterator[Use]:
    """Find the patterns that stand in a call of ``re`` in a module."""
    for node in ast.walk(source(name)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
            continue
        method = node.func.attr
        if method not in METHODS or not node.args:
            continue
        try:
            pattern = ast.literal_eval(node.args[0])
        except ValueError:
            assert name.split("/")[-1] in MADE, f"{name}, line {node.lineno}: write the pattern out, to be measured"
            continue
        given = " ".join(ast.unparse(one) for one in [*node.args[1:], *(key.value for key in node.keywords)])
        flags = sum(getattr(re, flag).value for flag in ("DOTALL", "MULTILINE", "IGNORECASE") if f"re.{flag}" in given)
        yield Use(f"{name} line {node.lineno}", pattern, flags, method in ANCHORED)


def uses(name: str) -> list[Use]:
    found: dict[tuple[str, int, bool], Use] = {}
    for one in (*held(name), *called(name)):
        found.setdefault((one.pattern, one.flags, one.anchored), one)
    return sorted(found.values())


# --- hostile texts -----------------------------------------------------------------------------------------

_parser: Any = importlib.import_module("re._parser")
CATEGORIES = {
    "CATEGORY_DIGIT": "1", "CATEGORY_NOT_DIGIT": "a", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_WORD": "a1", "CATEGORY_NOT_WORD": " -",
}  # fmt: skip


def samples(tree: Any) -> tuple[set[str], list[str]]:
    """Return characters that a pattern knows, and beginnings of texts that it matches."""
    signs: set[str] = set()
    beginnings: list[str] = []

    def sign_of(items: Any) -> str:
        inside: list[str] = []
        negated = False
        for kind, value in items:
            kind = str(kind)
            if kind == "NEGATE":
                negated = True
            elif kind == "LITERAL":
                inside.append(chr(value))
            elif kind == "RANGE":
                inside.append(chr(value[0]))
            else:
                inside += CATEGORIES[str(value)]
        signs.update(inside[:6])
        return next((one for one in "ax1 -\t" if one not in inside), "~") if negated else inside[0]

    def walk(tree: Any, before: str, least: bool) -> str:
        text = before
        for kind, value in tree:
            kind = str(kind)
            if kind in ("LITERAL", "NOT_LITERAL"):
                signs.add(chr(value))
                text += chr(value) if kind == "LITERAL" else "a"
            elif kind == "ANY":
                text += "a"
            elif kind == "IN":
                text += sign_of(value)
            elif kind == "BRANCH":
                texts = [walk(one, text, least) for one in value[1]]
                text = max(texts, key=len)
            elif kind in ("SUBPATTERN", "ATOMIC_GROUP"):
                text = walk(value[3] if kind == "SUBPATTERN" else value, text, least)
            elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
                once = walk(value[2], text, least)
                beginnings.append(text)
                text = text if least and value[0] == 0 else once
            elif kind in ("ASSERT", "ASSERT_NOT"):
                walk(value[1], text, least)
            if len(text) < 60:
                beginnings.append(text)
        return text

    walk(tree, "", True)
    walk(tree, "", False)
    return signs, list(dict.fromkeys(one for one in beginnings if one))


def hostile(use: Use, thorough: bool = True) -> Iterator[Callable[[int], str]]:
    """Return texts of any length that may take a pattern long; without ``thorough``, few but repetitions of a letter."""
    signs, beginnings = samples(_parser.parse(use.pattern, use.flags))
    letters = sorted(signs)[:14] + [one for one in "a1 \t\n\x00" if one not in signs]
    letters = list(dict.fromkeys(letters))
    draw = random.Random(repr(use.pattern))
    pumps = [*letters, *("".join(pair) for pair in itertools.permutations(letters, 2)), *beginnings]
    if len(pumps) > 160:
        pumps = [*letters, *beginnings[:40], *draw.sample(pumps, 120)]
    fronts = ["", *(beginnings if len(beginnings) < 6 else [beginnings[0], *draw.sample(beginnings, 5)])]
    for number, pump in enumerate(pumps):
        for place, front in enumerate(fronts if len(pump) <= 2 else [""]):
            if not thorough and (front or len(pump) > 1) and (number + place) % 9:
                continue
            yield lambda n, pump=pump, front=front: front + pump * (n // len(pump)) + "\x00"
    for one in letters:  # longer and longer: `, ``, ```, …
        yield lambda n, one=one: "x".join(one * size for size in range(1, int((2 * n) ** 0.5)))


def seconds(use: Use, text: str, often: int = 1) -> float:
    compiled = re.compile(use.pattern, use.flags)
    best = float("inf")
    for _ in range(often):
        began = time.process_time()
        if use.anchored:
            compiled.match(text)
            compiled.fullmatch(text)
        else:
            for _ in compiled.finditer(text):
                pass
        best = min(best, time.process_time() - began)
    return best


def grows(use: Use, made: Callable[[int], str], rounds: Sequence[int] = (1, 3, 3, 5)) -> float:
    """Return how many times as long a text takes that is four times as long; 0 if both are quick."""
    growth = 0.0
    for often in rounds:  # again and better, since other programs run
        short = seconds(use, made(SHORT), often)
        if short > CEILING:
            return float("inf")
        long = seconds(use, made(4 * SHORT), often)
        if long < FLOOR:
            return 0.0
        growth = long / max(short, 1e-9)
        if growth < 8:
            return 0.0
    return growth


#: The modules that have patterns.
WITH = [name for name in names() if "import re\n" in (ROOT / name).read_text("utf-8")]


def test_patterns_are_found() -> None:
    found = {name: uses(name) for name in WITH}
    assert sum(map(len, found.values())) > 60
    for name in names():
        assert not re.search(r"from re import|import re as", (ROOT / name).read_text("utf-8")), name
    assert found["documents/markup.py"]
    assert found["serve/guard.py"]


@pytest.mark.parametrize("name", WITH)
@pytest.mark.parametrize("thorough", sweep([False, True], 1))
def test_the_patterns_of_a_module_take_a_time_that_grows_with_the_text(name: str, thorough: bool) -> None:
    for use in uses(name):
        for made in hostile(use, thorough):
            assert grows(use, made) < 8, (use, made(40))


@pytest.mark.parametrize(
    "pattern",
    [
        r"\s*$",
        r"\[[^\]]*\]",
        r"(a+)+b",
        r"a.*b.*c",
        r"(`+)(?!`).+?(?<!`)\1(?!`)",
        r"\A---\n.*?^a:\s*(.+?)\s*$b",
        r"[\w.]+@",
    ],
)
def test_a_quadratic_pattern_is_noticed(pattern: str) -> None:
    use = Use("here", pattern, (re.MULTILINE | re.DOTALL).value if "---" in pattern else 0, False)
    if pattern == r"(a+)+b":  # its time doubles with each letter
        assert seconds(use, "a" * 20) > 4 * seconds(use, "a" * 16)
        return
    assert any(grows(use, made, (1, 1)) >= 8 for made in hostile(use, thorough=False))


# --- documents ---------------------------------------------------------------------------------------------

#: What is repeated in hostile documents, by their format.
PARTS = {
    "text": [
        "a ", " ", "\t", "> ", "- ", "1. ", "a. ", '"', "“", ". ", "a\n", "\n", "<b>", "<b>a</b>", "</b>", "a_", "a.",
        "a@", "\\", "/", "/a", "{", "[", "$", "%", "&", "'", "A1", "1 ", "1,", "a\n - ", "...", "_", "`", "http://",
        "é", "\ufeff",
    ],
    "html": [
        "<b>", "</b>", "<b></b>", "<b></i>", "<p>", "<p>a</p>", "<li>", "<", "</", "<!--", "<!", "<?", "<?php ", "&",
        "&#", "&a", " \t", "\n ", "a ", "<a b=", "<a b='", "<script>", "<code>", "</code>", "<li translate=no>",
        "<p translate=no>a", "&eacute;", "&copy;", "&nbsp;", "<title>", "<b>a. ", "a. </b>", "<b>a. A</b>",
        "<span translate=no>", "<br>", "<code>a</code>",
    ],
    "markdown": [
        "a", " ", "a ", "`", "`a", "![", "![a]", "[^", "[", "]", "](", "[a](", "*", "**a", "_", "~~", "$", "$a", "<a",
        "> ", "- ", "  - ", "1. ", "#", "|", "|a", "|a|b|\n", "\\", "[a]: b\n", "[a]:\n", "***\n", "a\n", "\n", "```\n",
        "<div>\n", "&a", "a  \n", "!", "(", "[](()", "[a]: <b> 'c\n", "|-|-|\n", "=\n",
    ],
    "srt": ["1\n00:00:01,000 --> 00:00:02,000\na\n\n", "1\n00:00:01,000 --> 00:00:02,000\n- a\n"],
    "po": [
        'msgid "a b"\nmsgstr ""\n', 'msgid "a"\n', '""\n', 'msgid ""\n"a b"\n', "#\n", 'msgstr ""\n""\n', '"a\\n"\n',
    ],
    "json": ['"a b", ', '"a\\u00e9 b", ', '"\\"a b", ', "[], ", '"a b\\n- c", ', '"<b>a b</b>", ', '{"a": "b c"}, '],
}  # fmt: skip
FRONTS = {
    "text": ["", "a. "],
    "html": ["", "<p>a", "<p translate=no>"],
    "markdown": ["", "a", "---\n", "|a|b|\n|-|-|\n"],
    "srt": [""],
    "po": ['msgid "a b"\n', 'msgid "a b"\nmsgstr ""\n'],
    "json": ["["],
}
ENDS = {"json": "0]", "text": " b", "html": " b</p>", "markdown": " b"}
#: What a document is, read: a text that is all one sentence is cut up again by its reader's caller.
DOCUMENT = 3000  # characters of the shorter document


def read(text: str, form: str) -> float:
    began = time.process_time()
    try:
        document = documents.read(text, form)
        document.written([one.unchanged() for one in document.sentences])
    except UserError:
        pass
    return time.process_time() - began


@pytest.mark.heavy  # minutes on a busy machine; the expressions of the documents are measured above
@pytest.mark.parametrize("form", PARTS)
def test_a_document_is_read_in_a_time_that_grows_with_it(form: str) -> None:
    worst = 0.0, ""
    for front, part in itertools.product(FRONTS[form], PARTS[form]):
        short, long = (front + part * (size // len(part)) + ENDS.get(form, "") for size in (DOCUMENT, 4 * DOCUMENT))
        if read(long, form) < 0.1:
            continue
        growth = read(long, form) / min(read(short, form) for _ in range(2))
        if growth > 7.5:  # measured again, since other programs run
            growth = min(growth, *(read(long, form) / read(short, form) for _ in range(3)))
        worst = max(worst, (growth, front + part))
    assert worst[0] < 7.5, worst
