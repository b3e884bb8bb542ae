"""Documents beside independent parsers: what is not translated stays to the last character, and no form is broken."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import html5lib
import polib
import pytest
import srt
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import examples
from seq2see.documents import formats
from seq2see.errors import UserError
from test_texts import through


def same(text: str, form: str) -> str:
    """Write a document with every sentence as it stands in it."""
    document = formats.read(text, form)
    return document.written([one.unchanged() for one in document.sentences])


def repeated(text: str, form: str) -> str:
    """Write a document with every sentence translated into itself: its words are written anew."""
    return through(text, form, lambda read: read)


def tree(text: str) -> str:
    return str(html5lib.serialize(html5lib.parse(text), quote_attr_values="always", omit_optional_tags=False))


# --- what was found by hand ------------------------------------------------------------------------------------

EXACT = {
    "html": [
        "<p>AT&T and R&D are big.</p>",
        "<p>AT&amp;T and R&D are big.</p>",
        "<p>Caf&eacute; au lait.</p>",
        "<p>Caf&eacute; and café. Both are good.</p>",
        "<p>Hello <?php echo $a > 1; ?> you.</p>",
        "<?php if ($a > 1) { ?><p>Hi you.</p>",
        "<p>a < b and b > c.</p>",
        "<p>&copyright; and &nosuch; and &amp are odd.</p>",
        "<p>&quot;Yes,&quot; she said. &#39;No.&#39;</p>",
        "\ufeff<p>Good morning.</p>",
        "<p>One<!-- > -->two.</p>",
        "<!DOCTYPE html>\r\n<title>A < b</title><p>x</p>",
        "<p>&#8217;t is. &#x2019;t was.</p>",
        "<p>a&#99999999999999;b is odd.</p>",
        "<i>x<b></b></i>. And <b><i></i></b>y.",
        "<p>He said: &ldquo;It is late.&rdquo; We left.</p>",
        "<textarea>a < b</textarea><p>Two words.</p>",
        "<a href='x>y'>the > link</a>",
    ],
    "po": [
        'msgid "C:\\\\dir is here"\nmsgstr ""\n',
        'msgid "a \\a bell \\x41 \\101"\nmsgstr "x"\n',
        '\ufeffmsgid "a b"\nmsgstr "c"\n',
        '  msgid "a b"\n  msgstr "c"\n',
        '# only\nmsgid "a b"\nmsgstr "x"\n\n#~ msgid "old one"\n#~ msgstr ""\n',
    ],
    "json": [
        '{"a": "\\\\server\\\\x is there"}',
        '{"a"' + " " * 1500 + ': "Two words"}',
        '["A \\u0000 b c"]',
        '["Half \\ud800 a word"]',
        '["caf\\u00e9 and café are good"]',
        '["a\\/b c d. And e\\/f g."]',
        '\ufeff["Good morning."]',
        '["\\ud83d\\ude00 is fine."]',
        '[ "One. Two.\\n\\nThree four." ,\r\n 1e5, null ]',
    ],
    "text": [
        "\ufeffGood morning.\n",
        "One two.\x0bThree four.\x0cFive six.",
        "a\x85b c\u2028d e.",
        "One\r\ntwo\rthree\n\n\n",
        " \t x. \x1cY z.",
    ],
    "srt": ["\ufeff1\n00:00:01,000 --> 00:00:02,000\n- Hello you.\n{\\an8}<i>Two\nlines.</i>\n\n"],
    "markdown": [
        "\ufeff# A title\n\nOne `code` two.\n",
        "a ``b ` c`` d. ```e``` f.\n",
        "![a](b(c)d) and [e](f(g)h) i.\n",
        "x  \ny\\\nz.\n",
    ],
}


@pytest.mark.parametrize(("form", "text"), [(form, text) for form, texts in EXACT.items() for text in texts])
def test_what_is_not_translated_stays_to_the_last_character(form: str, text: str) -> None:
    if form != "po":
        assert same(text, form) == text
        assert repeated(text, form) == text or form in ("html", "json")
    elif 'msgstr ""' not in text.replace("#~ msgstr", ""):
        assert same(text, form) == text


@pytest.mark.parametrize("text", EXACT["html"])
def test_html_that_is_written_anew_is_the_same_to_a_browser(text: str) -> None:
    if "?php" not in text and "nosuch" not in text:
        assert tree(repeated(text, "html")) == tree(text)


def test_references_are_written_as_the_document_writes_them() -> None:
    for text in (
        "<p>AT&T is big.</p>",
        "<p>AT&amp;T is big.</p>",
        "<p>Caf&eacute; au lait.</p>",
        "<p>a > b is so.</p>",
    ):
        assert repeated(text, "html") == text
    assert "&copy" not in repeated("<p>A & copy of it, R&D.</p>", "html")
    document = formats.read("<p>R&D is big.</p>", "html")
    assert document.written(["M&copy;"]) == "<p>M&copy;</p>"  # an answer is written as it is given
    (sentence,) = document.sentences
    assert sentence.written("x &lt; y &amp z & R&D", sentence.read()) == "x &amp;lt; y &amp;amp z & R&D"


def test_an_element_without_an_end_tag_ends_where_the_next_begins() -> None:
    for text, expected in (
        ("<ul><li translate=no>A a<li>B b</ul><p>C c</p>", ["B b", "C c"]),
        ("<p translate=no>A a<div>B b</div>", ["B b"]),
        ("<ul><li translate=no>A<ul><li>x y</ul><li>B b</ul>C c", ["B b", "C c"]),
        ("<table><tr><td translate=no>A a<td>B b<tr><td>C c</table>", ["B b", "C c"]),
        ("<dl><dt translate=no>A a<dd>B b</dl>", ["B b"]),
        ("<p>A <code>b c</code> d.</p><pre>x <pre>y</pre> z</pre><p>E e</p>", ["A b c d.", "E e"]),
    ):
        found = formats.read(text, "html")
        assert [one.text.replace("<code>", "").replace("</code>", "") for one in found.sentences] == expected, text
        assert same(text, "html") == text


def test_strings_of_po_files_are_read_and_written() -> None:
    text = (
        'msgid "C:\\\\dir is \\x41 \\101 \\"good\\"\\n"\nmsgstr ""\n""\n\n  msgid ""\n  "one "\n  "two"\n  msgstr ""\n'
    )
    written = repeated(text, "po")
    first, second = polib.pofile(written)
    assert written.startswith(
        'msgid "C:\\\\dir is \\x41 \\101 \\"good\\"\\n"\nmsgstr "C:\\\\dir is A A \\"good\\"\\n"\n""\n'
    )
    assert second.msgstr == "one two"
    assert first.msgstr.startswith("C:\\dir is")


def test_a_byte_order_mark_is_no_part_of_the_first_sentence() -> None:
    for form, text in (("text", "Good morning."), ("html", "<p>Good morning.</p>"), ("markdown", "Good morning.")):
        (sentence,) = formats.read("\ufeff" + text, form).sentences
        assert sentence.text == "Good morning."


def test_a_string_with_half_a_character_stays_and_is_named() -> None:
    document = formats.read('["Half \\ud800 a word", "Two words", "nul \\u0000 here"]', "json")
    assert [one.text for one in document.sentences] == ["Two words"]
    assert document.notes == ("2 strings with half a character or a NUL stayed as written.",)


def test_a_sentence_with_very_many_tags_stays_and_is_counted() -> None:
    text = f"<p>{'<b>a</b> ' * 200}end.</p><p>Two <b>words</b>.</p>"
    document = formats.read(text, "html")
    assert [one.text for one in document.sentences] == ["Two words."]
    assert document.notes == ("1 sentence with more than 100 tags each stayed as written.",)
    assert same(text, "html") == text


# --- any documents ---------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "a",
        "Two words.",
        "One. Two!",
        "“Yes. No.”",
        "x y",
        "é",
        "AT&T",
        "1,000",
        "http://a.b/c",
        "{x}",
        "%s",
        "\\",
        "C:\\dir",
        '"',
        "'",
        "\t",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\x0b",
        "<b>",
        "</b>",
        "😀",
        "\u00a0",
        "ß",
        "A_b",
        "`c`",
        ".",
        "…",
        "-",
        "\x1b",
        "\u2028",
    ]
)
TEXTS = st.lists(WORDS, max_size=8).map("".join)
#: polib reads lines as Python does, and breaks at what PO does not.
UNTAGGED = TEXTS.map(lambda text: text.replace("<b>", "").replace("</b>", "").replace("\u2028", ""))
HTML = st.lists(
    st.sampled_from(
        [
            "<p>",
            "</p>",
            "<b>",
            "</b>",
            "<i>",
            "</i>",
            "<br>",
            "<ul>",
            "<li>",
            "</li>",
            "</ul>",
            "<li translate=no>",
            "&amp;",
            "&",
            "&lt;",
            "&eacute;",
            "é",
            "&nbsp;",
            "&copy;",
            "<!-- c -->",
            "<code>x < y</code>",
            "a",
            "Two words. ",
            "One.",
            " ",
            "\n",
            " > ",
            "< ",
            "<a href='x>y'>",
            "</a>",
            "<img src=x>",
            "&quot;",
            '"',
            "&#39;",
            "'",
            "AT&T",
            "<span translate=no>",
            "</span>",
            "<div>",
            "</div>",
        ]
    ),
    max_size=14,
).map("".join)
VALUES: Any = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(150))
@given(HTML)
def test_any_html_stays_exact_and_the_same_to_a_browser(text: str) -> None:
    try:
        document = formats.read(text, "html")
    except UserError:
        return
    assert same(text, "html") == text
    if not any(sentence.pairs for sentence in document.sentences):
        assert tree(repeated(text, "html")) == tree(text)


@settings(max_examples=examples(150))
@given(TEXTS, st.sampled_from(["text", "markdown"]))
def test_any_text_stays_exact(text: str, form: str) -> None:
    if form == "text" or "\r" not in text.replace("\r\n", "\n"):
        assert same(text, form) == text
        if "<b>" not in text and "</b>" not in text:
            assert repeated(text, "text") == text


@settings(max_examples=examples(150))
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_any_json_stays_exact_and_means_the_same(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert same(text, "json") == text
    if "<b>" not in text and "</b>" not in text:
        assert json.loads(repeated(text, "json")) == value


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(UNTAGGED.filter(bool), UNTAGGED, st.booleans()), min_size=1, max_size=4))
def test_any_po_file_gets_the_translations_that_it_lacks(entries: list[tuple[str, str, bool]]) -> None:
    made = polib.POFile(wrapwidth=30)
    for number, (source, target, plural) in enumerate(entries):
        entry = polib.POEntry(msgid=source, msgctxt=str(number), msgstr=target)
        if plural:
            entry = polib.POEntry(
                msgid=source, msgid_plural=source, msgctxt=str(number), msgstr_plural={0: target, 1: ""}
            )
        made.append(entry)
    text = str(made)
    before, after = polib.pofile(text), polib.pofile(repeated(text, "po"))
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert (old.msgid, old.msgctxt, old.msgid_plural) == (new.msgid, new.msgctxt, new.msgid_plural)
        if old.msgid_plural:
            assert new.msgstr_plural == {n: one or old.msgid for n, one in old.msgstr_plural.items()}
        else:
            assert new.msgstr == (old.msgstr or old.msgid)


LINES = st.lists(
    st.sampled_from(["Hello.", "One two", "- Yes.", "So", "5", "{\\an8}Up", "and more"]), min_size=1, max_size=3
)


@settings(max_examples=examples(100))
@given(st.lists(LINES, min_size=1, max_size=5))
def test_any_subtitles_stay_exact_and_keep_their_times(cues: list[list[str]]) -> None:
    made = [
        srt.Subtitle(n, timedelta(seconds=n), timedelta(seconds=n + 1), "\n".join(lines))
        for n, lines in enumerate(cues, 1)
    ]
    text = srt.compose(made)
    assert same(text, "srt") == text
    after = list(srt.parse(repeated(text, "srt")))
    assert [(one.start, one.end, one.content) for one in after] == [
        (one.start, one.end, one.content) for one in srt.parse(text)
    ]
