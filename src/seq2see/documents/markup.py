"""HTML as runs of words; everything else is written back unchanged."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seq2see.documents.runs import Builder, DocumentPart
from seq2see.errors import UserError, shown
from seq2see.stopping import go_on

#: Elements within a sentence.
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike strong sub sup "
    "time tt u".split()
)
#: Elements whose content is not translated, within a sentence and as a block.
CODE_INLINE = frozenset("code kbd samp var math".split())
CODE = frozenset("script style pre textarea svg template noscript object iframe canvas".split())
ALONE_INLINE = frozenset("img wbr input".split())
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
#: Elements that may end without an end tag.
OPTIONAL = frozenset("html head body p li dt dd option optgroup thead tbody tfoot tr td th colgroup rp rt".split())
_ROWS = "tbody thead tfoot"
#: The elements that end one of these by their beginning.
ENDED_BY = {
    name: frozenset(others.split())
    for name, others in {
        "li": "li", "dt": "dt dd", "dd": "dt dd", "option": "option optgroup", "optgroup": "optgroup", "rp": "rp rt",
        "rt": "rp rt", "td": f"td th tr {_ROWS}", "th": f"td th tr {_ROWS}", "tr": f"tr {_ROWS}", "thead": _ROWS,
        "tbody": _ROWS, "tfoot": _ROWS, "colgroup": f"tr {_ROWS}", "head": "body",
        "p": "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form "
             "h1 h2 h3 h4 h5 h6 header hgroup hr main menu nav ol p pre search section summary table ul",
    }.items()
}  # fmt: skip
#: Elements without inner tags, and their ends.
RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "iframe", "noembed", "noframes", "xmp")
}
NAME = re.compile(r"[A-Za-z][^\s/>]*+")
BARE = re.compile(r"<(/?)([A-Za-z][^\s/>]*+)>")  # a tag without attributes, as most are
#: One attribute of a tag, or the end of the tag.
ATTRIBUTE = re.compile(
    r"[\s/]*+(?:(?P<end>>)|(?P<name>[^\s/>][^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'|(?P<bare>(?![\"'])[^\s>]*+)))?)"
)
COMMENT_END = re.compile(r"--!?>")
REFERENCE = re.compile(r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{1,31};?)")
LONGEST_NUMBER = 12  # most characters of a numeric reference
#: Parts of HTML text: a line end, which is a space in HTML; a reference; a sign that may need one.
WORDS = re.compile(rf"(?P<line>(?<![ \t])[ \t]*+[\r\n]\s*+)|(?P<reference>{REFERENCE.pattern})|(?P<sign>[<>&])")


class Token(NamedTuple):
    """A part of an HTML document, from one place to another."""

    first: int
    last: int
    kind: str  # words, open, close, alone, comment, block
    name: str = ""
    stays: bool = False  # whether its words stay


def tokens(text: str) -> Iterator[Token]:
    """Tokenize HTML as the standard does, in one pass; the tokens concatenate to the text."""
    at = words = 0
    while (at := text.find("<", at)) >= 0:
        go_on()
        bare = BARE.match(text, at)
        if bare is not None:
            token: Token | None = Token(at, bare.end(), "close" if bare[1] else "open", bare[2].lower())
        else:
            token = _tag(text, at)
        if token is None:  # a sign that is not a tag
            at += 1
            continue
        if at > words:
            yield Token(words, at, "words")
        yield token
        at = words = token.last
        if token.kind == "open" and token.name in RAW:
            end = RAW[token.name].search(text, at)
            if end is None:
                raise UserError(f"<{token.name}> has no end: the HTML is broken.")
            if end.start() > at:
                yield Token(at, end.start(), "words")
            at = words = end.start()
    if words < len(text):
        yield Token(words, len(text), "words")


def _tag(text: str, at: int) -> Token | None:
    """Read a tag, or return None if the < is only a sign."""
    after = text[at + 1 : at + 2]
    if after == "!":
        return _declared(text, at)
    if after == "?":
        code = text[at : at + 5].lower().startswith(("<?php", "<?=", "<? "))
        end = text.find("?>", at) + 2 if code else text.find(">", at) + 1
        if end < 2 and not code:
            raise _unended(text, at)
        return Token(
            at, end if end > 1 else len(text), "comment" if code else "block"
        )  # a script may end with the file
    closes = after == "/"
    name = NAME.match(text, at + 1 + closes)
    if name is None:
        if not closes:
            return None
        if (end := text.find(">", at)) < 0:
            raise _unended(text, at)
        return Token(at, end + 1, "comment")
    end, stays = name.end(), False
    while True:
        one = ATTRIBUTE.match(text, end)
        if one is None:
            raise _unended(text, at)
        end = one.end()
        if one["end"]:
            break
        value = one["double"] or one["single"] or one["bare"] or ""
        given = one["name"].lower()
        stays |= given == "translate" and value.strip().lower() == "no"
        stays |= given == "class" and "notranslate" in value.split()
    kind = "close" if closes else "alone" if text[end - 2] == "/" else "open"
    return Token(at, end, kind, name[0].lower(), stays)


def _declared(text: str, at: int) -> Token:
    """Read a comment or a declaration."""
    if not text.startswith("<!--", at):
        if (end := text.find(">", at)) < 0:
            raise _unended(text, at)
        return Token(at, end + 1, "block")
    for short in ("<!-->", "<!--->"):
        if text.startswith(short, at):
            return Token(at, at + len(short), "comment")
    ended = COMMENT_END.search(text, at + 4)
    if ended is None:
        raise _unended(text, at)
    return Token(at, ended.end(), "comment")


def _unended(text: str, at: int) -> UserError:
    line = text.count("\n", 0, at) + 1
    return UserError(f"Line {line:,}: {shown(text[at:], 30)} does not end with >: the HTML is broken.")


def web(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read HTML: tags, comments, scripts and code stay; words between block elements are a run."""
    found = list(tokens(text))
    notes += _unbalanced(text, found)
    escape = escape_of(text[one.first : one.last] for one in found if one.kind == "words")
    builder, fixed = Builder(escape), _Fixed()
    for token in found:
        go_on()
        raw = text[token.first : token.last]
        if fixed:
            ended = fixed.takes(token, raw)
            if not fixed:
                if fixed.name in CODE_INLINE or fixed.name in INLINE:
                    builder.add("fixed", fixed.text())
                else:
                    yield from _flushed(builder)
                    builder = Builder(escape)
                    yield fixed.text()
            if not ended:
                continue
        kind, name = token.kind, token.name
        if kind == "open" and name not in VOID and (token.stays or name in CODE or name in CODE_INLINE):
            fixed.begin(name, raw)
        elif kind == "words":
            _add_words(builder, raw)
        elif kind in ("open", "close") and name in INLINE:
            builder.add(kind, raw, name)
        elif kind == "comment" or name in ALONE_INLINE or (kind == "alone" and name in INLINE):
            builder.add("fixed", raw)
        else:
            yield from _flushed(builder)
            builder = Builder(escape)
            yield raw
    yield from _flushed(builder)
    yield fixed.text()


class _Fixed:
    """An element whose words stay, while it is read."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.stack: list[str] = []
        self.name = ""

    def __bool__(self) -> bool:
        return bool(self.stack)

    def text(self) -> str:
        """Return the collected text, and reset."""
        parts, self.parts = self.parts, []
        return "".join(parts)

    def begin(self, name: str, raw: str) -> None:
        self.parts, self.stack, self.name = [raw], [name], name
        self.open = Counter([name])

    def takes(self, token: Token, raw: str) -> bool:
        """Take a token. Return True if it was not taken, because it ends an element without an end tag."""
        kind, name = token.kind, token.name
        if self.name not in OPTIONAL:
            if kind in ("open", "close") and name == self.name:
                self._push(name) if kind == "open" else self._pop()
            self.parts.append(raw)
            return False
        if kind == "open" and name not in VOID:
            while self.stack and name in ENDED_BY.get(self.stack[-1], ()):
                self._pop()
            if not self.stack:
                return True
            self._push(name)
        elif kind == "close" and name not in VOID:
            if not self.open[name]:  # it closes the parent of the element
                if all(one in OPTIONAL for one in self.stack):
                    self.stack.clear()
                    return True
            else:
                while self._pop() != name:
                    pass
        self.parts.append(raw)
        return False

    def _push(self, name: str) -> None:
        self.stack.append(name)
        self.open[name] += 1

    def _pop(self) -> str:
        name = self.stack.pop()
        self.open[name] -= 1
        return name


def escape_of(words: Iterator[str]) -> Callable[[str], str]:
    """Return how a document writes characters: é as &eacute; if it always does, and & as &amp; if it ever does."""
    ways: dict[str, set[str]] = {}
    plain: set[str] = set()
    for text in words:
        at = 0
        for found in REFERENCE.finditer(text):
            plain.update(text[at : found.start()])
            at = found.end()
            if len(found[0]) <= LONGEST_NUMBER or not found[0].startswith("&#"):
                sign = html.unescape(found[0])
                if sign == found[0]:
                    plain.add("&")
                elif len(sign) == 1 and not sign.isspace():
                    ways.setdefault(sign, set()).add(found[0])
        plain.update(text[at:])
    table = {ord(sign): min(one) for sign, one in ways.items() if len(one) == 1 and sign not in plain and sign != "&"}
    table |= {ord("<"): "&lt;"} | ({} if ">" in plain and ">" not in ways else {ord(">"): "&gt;"})
    bare = "&" in plain and "&" not in ways

    def escape(text: str) -> str:
        if not bare:
            return text.replace("&", "&amp;").translate(table)
        parts, at = list[str](), 0
        for found in REFERENCE.finditer(text):  # an & that would be read as a reference
            if found[0].startswith("&#") or html.unescape(found[0]) != found[0]:
                parts += [text[at : found.start()].translate(table), "&amp;"]
                at = found.start() + 1
        return "".join([*parts, text[at:].translate(table)])

    return escape


def _add_words(builder: Builder, raw: str) -> None:
    """Add words; a line end is a break, since HTML treats it as a space, and so is &nbsp;."""
    at = 0
    for found in WORDS.finditer(raw):
        if found.start() > at:
            builder.add("words", raw[at : found.start()])
        at, written = found.end(), found[0]
        if found["line"]:
            builder.add("break", written)
        elif found["sign"]:
            _add_sign(builder, written, written)
        elif written.startswith("&#") and len(written) > LONGEST_NUMBER:
            builder.add("fixed", written)
        else:
            _add_sign(builder, html.unescape(written), written)
    if at < len(raw):
        builder.add("words", raw[at:])


def _add_sign(builder: Builder, text: str, raw: str) -> None:
    if text == "\xa0":
        builder.add("break", raw)
    elif not text or (unicodedata.category(text[0])[0] == "S" and text not in "<>" and text != raw):  # ©, →: not words
        builder.add("fixed", raw)
    elif len(text) > 1:  # a sign with letters after it, such as &copyright: kept as it is written
        if text == raw:
            _add_sign(builder, "&", "&")
            builder.add("words", raw[1:])
        else:
            builder.add("fixed", raw)
    else:
        builder.add("words", text, raw if builder.escape(text) != raw else "")


def _flushed(builder: Builder) -> Iterator[DocumentPart]:
    if builder.has_words:
        yield builder.run()
    else:  # only tags, of which there may be many
        yield from (text for _, _, text in builder.parts)


def _unbalanced(text: str, found: Sequence[Token]) -> list[str]:
    """Report the first tag without a partner; it stays where it is."""
    stack: list[Token] = []

    def line(token: Token) -> int:
        return text.count("\n", 0, token.first) + 1

    for token in found:
        name = token.name
        if token.kind == "open" and name not in VOID:
            stack.append(token)
        elif token.kind == "close" and name not in VOID:
            while stack and stack[-1].name != name and stack[-1].name in OPTIONAL:
                stack.pop()
            if not stack or stack[-1].name != name:
                if name in OPTIONAL:
                    continue
                return [f"Line {line(token):,}: </{name}> closes nothing; it was left where it is."]
            stack.pop()
    left = [token for token in stack if token.name not in OPTIONAL]
    return [f"Line {line(token):,}: <{token.name}> is never closed; it was left where it is." for token in left[:1]]
