"""Reads YAML as far as Marian writes it: settings, and vocabularies."""

from __future__ import annotations

import re
from pathlib import Path

from seq2see.errors import FolderError, shown
from seq2see.interchange.imported import brief, foreign_lines

END, UNKNOWN = "</s>", "<unk>"
SIMPLE = re.compile(r"([\w-]{1,100}):(?: (.*))?")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b",
           "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip


def simple_yaml(lines: list[str]) -> dict[str, str | list[str]]:
    """Read names with a value or a list of values each, all as texts; deeper levels are ignored."""
    found: dict[str, str | list[str]] = {}
    name = ""
    for line in lines:
        if simple := SIMPLE.fullmatch(line.rstrip()):
            name = simple[1]
            found[name] = unquoted((simple[2] or "").strip())
        elif (item := line.strip()).startswith("- ") and name:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else []), unquoted(item[2:].strip())]
    return found


def unquoted(text: str) -> str:
    """Read a text of YAML on one line: in double quotes with escapes, in single quotes, or plain."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) > 1 and text[0] == text[-1] == '"':
        return ESCAPE.sub(_escaped, text[1:-1])
    return text


def _escaped(found: re.Match[str]) -> str:
    what = found[1]
    if len(what) > 1:
        number = int(what[1:], 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise FolderError(f"A vocabulary has the escape {shown(found[0])}, which is not a character.")
        return chr(number)
    return ESCAPES.get(what, what)


def vocabulary(file: Path) -> list[str]:
    """Read a vocabulary: ``"token": number`` on each line, or ``? token`` and ``: number`` on two."""
    if file.suffix not in (".yml", ".yaml"):
        raise FolderError(
            f"The vocabulary {shown(file.name)} cannot be read: a .yml with tokens and their ids was expected."
        )
    ids: dict[str, int] = {}
    key = ""
    for line in foreign_lines(file):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        if line.startswith("? "):
            key = line[2:]
            continue
        token, _, number = line.rpartition(":")
        token = unquoted((token or key).strip())
        if not number.strip().isdecimal() or len(number) > 10 or token in ids:
            raise FolderError(f"{shown(file.name)} does not give each token one id: {brief(line)}.")
        ids[token] = int(number)
    names = sorted(ids, key=ids.__getitem__)
    if [ids[name] for name in names] != list(range(len(names))) or not {END, UNKNOWN} <= ids.keys():
        raise FolderError(
            f"{shown(file.name)} does not number its tokens from 0 without gaps, with {END} and {UNKNOWN} among them."
        )
    return names
