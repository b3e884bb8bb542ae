"""Documents of six formats come back with other words and nothing else changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import seq2see
from conftest import examples
from seq2see import Config, ModelConfig, TrainingConfig, Transformer
from seq2see.answering import translation
from seq2see.answering.translation import translate
from seq2see.cli import app
from seq2see.cli import documents as command
from seq2see.config import REPAIRS, DecodingConfig
from seq2see.data.cuts import cuts_of
from seq2see.decoding.hypothesis import PAPER, Phrase
from seq2see.documents import formats as documents
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import UserError
from seq2see.inspection.alignment import words_of
from seq2see.stopping import Stopped, stopped_when
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

RULES = PAPER.but(repairs=REPAIRS)

TEXT = """The Title

  Hello there, my friend. This is a paragraph that was broken to fit
  the width of a page, and it goes on. See https://example.com/a_b, or
  write to me@x.org.

- one item. And more.
   1. nested {name} has %s
> quoted text is
> here
Poem line one
Poem line two\r\n\tEnd <b>bold</b> move <br/> x."""

HTML = """<!DOCTYPE html>
<html><head><title>My page</title><style>p {a: b}</style></head>
<body class="x"><h1>Hello &amp; <em>good</em> bye</h1>
<p>This is <b>very <i>important</i></b>, see <a href="http://x.y?a=1&b=2" title="a>b">this
   page</a>. Use <code>a &lt; b</code> now.<br>Next line <img src="x.png"> here
<ul><li>One<li>Two &lt;b&gt; three</ul>
<pre>keep me</pre><p><b>All bold. Two sentences.</b> <span translate="no">Not me</span></p>
<script>if (a<b) {}</script><!-- note --> &copy; 2024 &nbsp; end
</body></html>
"""

MARKDOWN = """---
title: x
---
# A heading with *stars* #

Some text with `code`, a [link here](http://a.b/c "t") and **bold
words** on two lines. 2 * 3 snake_case_name. ![alt](x.png) ~~gone~~

| a cell | other cell |
|---|---|
| one **two** | three |

```python
code here
```
> Quoted text. And more
> of it.

1. First item.
2. Second item
   goes on here.

Line with hard break  \nnext line. <b>html</b> &amp; <https://x.y>
"""

SRT = """1
00:00:01,000 --> 00:00:04,000
<i>Hello there, my</i>
friend. How are

2
00:00:05,000 --> 00:00:07,500
you today?

3
00:00:08,000 --> 00:00:09,500
- Fine.
- {\\an8}Good!
"""

PO = r"""# comment
msgid ""
msgstr ""
"Content-Type: text/plain\n"

#, c-format
msgid "You have %d \"new\" message.\n"
msgid_plural ""
"You have %d messages. "
"Yes."
msgstr[0] ""
msgstr[1] ""

msgid "done"
msgstr "fini"
"""

JSON = r"""{"title": "Hello <b>world</b>!", "n": 3, "id": "btn_ok", "long":
 [{"text": "Line one.\nLine two {name} \"x\""}], "u":"https://a.b", "lang": "en-US", "ok": "Cancel"}"""

SOURCES = {"text": TEXT, "html": HTML, "markdown": MARKDOWN, "srt": SRT, "po": PO, "json": JSON}


@dataclass(frozen=True)
class Reply:
    output: str
    finished: bool = True
    error: str | None = None


class Means(NamedTuple):
    """What a translation needs of a model."""

    replies: Any
    links: Any
    fits: Any
    target: Any


def means(answer: Callable[[str], str], again: Callable[[str, list[Phrase]], str] | None = None) -> Means:
    """A model that answers as a function says, and whose words keep their order."""

    def replies(texts: list[str], rules: Any, phrases: list[list[Phrase]] | None, *_: Any) -> list[Any]:
        if phrases is not None:
            assert again is not None, "nothing was to be searched for again"
            return [Reply(again(text, row)) for text, row in zip(texts, phrases, strict=True)]
        return [Reply(answer(text)) for text in texts]

    def links(pairs: list[tuple[str, str]]) -> list[Any]:
        return [list(zip(words_of(one), words_of(other), strict=False)) for one, other in pairs]

    tokenizer = Tokenizer.bpe(["a b c"], 600)
    return Means(replies, links, lambda text: len(text) <= 200, tokenizer)


def through(text: str, form: str, answer: Callable[[str], str]) -> str:
    document = documents.read(text, form)
    return document.written([one.text for one in translate(document.sentences, means(answer), RULES)])


@pytest.mark.parametrize("form", [form for form in SOURCES if form != "po"])
def test_a_document_whose_words_stay_is_the_same_to_the_last_character(form: str) -> None:
    text = SOURCES[form]
    assert through(text, form, lambda read: read) == text.replace("&nbsp;", "&nbsp;")


def swapped(read: str) -> str:
    """Another language: the case of every letter is the other one."""
    return read.swapcase()


#: What stays in each document. All other letters are of words, and change.
STAYS = {
    "text": r"https://[^,]*|me@x\.org|\{name\}|%s|<[^>]*>",
    "html": r'(?s:<(style|code|pre|script|span)\b.*?</\1>)|<a .*?b">|<[^>]*>|&lt;b&gt;|&\w+;',
    "markdown": r"(?s:^---.*?---|```.*?```)|`[^`]*`|\]\([^)]*\)|!\[.*?\)|snake_case_name|<[^>]*>|&amp;",
    "srt": r"<[^>]*>|\{.*?\}",
    "po": "(?s:.*)",
    "json": r'"\w+":|"btn_ok"|"https[^"]*"|"en-US"|\\n|\{name\}|<[^>]*>',
}


@pytest.mark.parametrize("form", SOURCES)
def test_only_the_words_change(form: str) -> None:
    at, expected, source = 0, "", SOURCES[form]
    for stays in re.finditer(STAYS[form], source, re.MULTILINE):
        expected += swapped(source[at : stays.start()]) + stays[0]
        at = stays.end()
    expected += swapped(source[at:])
    if form == "po":  # whose words are written anew, beside the old ones
        new = 'msgstr[0] "yOU HAVE %d \\"NEW\\" MESSAGE.\\n"\nmsgstr[1] "yOU HAVE %d MESSAGES. yES."'
        expected = source.replace('msgstr[0] ""\nmsgstr[1] ""', new)
    assert through(source, form, swapped) == expected


@pytest.mark.parametrize("form", ["html", "markdown", "text"])
def test_tags_follow_their_words(form: str) -> None:
    """The words change places: a pair goes around those that come from the words it was around."""

    def backwards(read: str) -> str:
        return " ".join(reversed(read.removesuffix(".").split())) + "."

    made = means(backwards)

    def links(pairs: list[tuple[str, str]]) -> list[Any]:
        found = []
        for one, other in pairs:
            mine, theirs = words_of(one)[:-1], words_of(other)[:-1]
            found.append([*zip(mine, reversed(theirs), strict=True)])
        return found

    document = documents.read("The <b>very <i>red</i></b> car {x} went.", form)
    (one,) = translate(document.sentences, Means(made.replies, links, made.fits, made.target), RULES)
    assert one.text == "went {x} car <b><i>red</i> very</b> The."


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("A gas is CO2, and H2O is none.", "A gas is CO<sub>2</sub>, and H<sub><i>2</i></sub>O is none."),
        ("H2O and CO2, CO2 and CO2", "H<sub><i>2</i></sub>O and CO2, CO<sub>2</sub> and CO2"),  # that is nearest
        ("H2O is H2O. CO2!", "H<sub><i>2</i></sub>O is H2O. CO<sub>2</sub>!"),
        # another word gets the tags; a number after letters stays a number
        ("H2Os and XCO2", "<sub><i>H2Os</i></sub> and XCO<sub>2</sub>"),
    ],
)
def test_tags_within_a_word_stay_at_its_letters(answer: str, expected: str) -> None:
    html = "H<sub><i>2</i></sub>O is CO<sub>2</sub>."
    assert through(html, "html", lambda _: answer) == expected


@pytest.mark.parametrize(
    ("html", "answer", "expected"),
    [
        ("The 21<sup>st</sup> year.", "Das 21. Jahr.", "Das 21<sup></sup>. Jahr."),
        ("The 21<sup>st</sup> year.", "La 21e année.", "La 21<sup>e</sup> année."),
        ("The 21<sup>st</sup> year.", "La 21ère année a 21 jours.", "La 21<sup>ère</sup> année a 21 jours."),
        # one after the other, if there are as many
        ("On 3<b>rd</b> or 3<i>rd</i>.", "3e ou 3ème.", "3<b>e</b> ou 3<i>ème</i>."),
        # the letters are no end of a number, or the number is no end of a word
        ("The 4<b>by</b>4 car.", "Das 4x4 Auto.", "Das <b>4x4</b> Auto."),
        ("See note<sup>1</sup> here.", "Siehe Notiz1 hier.", "Siehe Notiz<sup>1</sup> hier."),
        ("See note<sup>1</sup> here.", "Siehe Notiz 1 hier.", "Siehe <sup>Notiz</sup> 1 hier."),
    ],
)
def test_what_is_raised_after_a_number_or_a_word_stays_small(html: str, answer: str, expected: str) -> None:
    assert through(html, "html", lambda _: answer) == expected


FRAGMENTS = ["One cat.", "two dogs", " ", "\n", "<b>", "</b>", "<i>", "</i>", "<br>", "<p>", "&amp;", "{x}", "**", "`y`",
             "[a](b)", "# "]  # fmt: skip


@given(
    st.text(alphabet="ab. <>/\n*_`[]()#-|&;{}1:\"'\\", max_size=50)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.sampled_from(["text", "html", "markdown"]),
)
@example("<p><b>One cat.</b> <i>Two dogs.</i></p>", "html")
@example("<p>One cat.<b> </b>Two dogs.</p>", "html")
@settings(max_examples=examples(300))
def test_no_character_is_lost_in_any_document(text: str, form: str) -> None:
    try:
        document = documents.read(text, form)
    except UserError:
        return
    found = through(text, form, lambda read: read)
    if form == "html":
        import html

        text, found = (re.sub(r"&\w+;?", lambda entity: html.unescape(entity[0]), one) for one in (text, found))
        text, found = (one.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for one in (text, found))
    # A tag may move where a placeholder reaches across its end; nothing else does.
    assert sorted(found) == sorted(text)
    if not any(sentence.pairs for sentence in document.sentences):
        assert found == text


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("html", "<p>Hello <b", "Line 1: '<b' does not end with >"),
        ("srt", "Hello\nyou", "Line 1 is 'Hello': subtitles begin with a number"),
        ("srt", "1\n00:00:01,000 --> 00:00:04,000\nHi\n\nno times\n", "Line 5 is 'no times'"),
        ("json", '{"a": }', "is not JSON"),
        ("po", "hello", "There is no msgid"),
        ("xml", "a", "There is no format 'xml'"),
    ],
)
def test_a_document_that_cannot_be_read_is_refused_in_one_sentence(form: str, text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        documents.read(text, form)


def test_tags_without_partners_are_named_and_stay() -> None:
    document = documents.read("<p>One </b>two <i>three</p>", "html")
    assert document.notes == ("Line 1: </b> closes nothing; it was left where it is.",)
    assert through("<p>One </b>two <i>three</p>", "html", swapped) == "<p>oNE </b>TWO <i>THREE</p>"
    assert document.sentences[0].text == "One two three"  # the words beside them are translated
    assert through("<p>One</b> two<i> three</p>", "html", swapped) == "<p>oNE</b> TWO<i> THREE</p>"
    assert through("<div><span>One two", "html", swapped) == "<div><span>oNE TWO"


def test_long_sentences_are_cut_and_equal_ones_are_answered_once() -> None:
    asked: list[str] = []

    def answer(read: str) -> str:
        asked.append(read)
        return read

    text = "We went on and on, " * 40 + "and came home. Hi. Hi."
    document = documents.read(text)
    found = translate(document.sentences, means(answer), RULES)
    assert document.written([one.text for one in found]) == text
    assert max(map(len, asked)) <= 200
    assert asked.count("Hi.") == 1


def test_tags_of_a_sentence_that_is_cut_are_around_all_of_its_parts() -> None:
    text = "<p>See <b>this: " + "we went <i>on and on</i>, <wbr>" * 40 + "and came home</b> now.</p>"
    found = through(text, "html", lambda read: read)
    assert found.count("<b>") == found.count("</b>") > 1
    assert re.sub(r"</?b>", "", found) == re.sub(r"</?b>", "", text)
    inside = re.findall(r"<b>(.*?)</b>", found)
    assert " ".join(inside) == text[len("<p>See <b>") : -len("</b> now.</p>")]


def test_a_line_of_ten_megabytes_is_read() -> None:
    text = "It was a good day and we went home. " * 3_000
    assert len(documents.read(text).sentences) == 3_000
    data = "A" * 5_000_000
    assert documents.read(data).sentences == []  # no word is so long: it is data, and stays


def test_what_is_missing_is_searched_for_again_then_put_in_and_said() -> None:
    def first(read: str) -> str:
        return re.sub(r" ?\d+|[{}]", "", read)

    def again(read: str, phrases: list[Phrase]) -> str:
        assert len(phrases) == (2 if "{1}" in read else 1)
        return read if "room" in read else first(read)

    found = translate([Sentence("See room 12 at x_y.")], means(first, again), RULES)
    assert found[0].text == "See room 12 at x_y."
    assert found[0].remarks == (
        "the first answer lacked '12', 'x_y', so a second search was made for an answer with it",
    )
    found = translate([Sentence("See hall 12.")], means(first, again), RULES)
    assert found[0].text == "See hall 12."
    assert found[0].remarks == ("the answer lacked '12', which was inserted: check it",)
    found = translate([Sentence("See the hall.")], means(first), RULES)
    assert found[0].remarks == ()


def test_a_loop_is_searched_for_again() -> None:
    rules_seen = []

    def replies(texts: list[str], rules: Any, phrases: Any, *_: Any) -> list[Any]:
        rules_seen.append(rules)
        return [Reply("no no no no no" if not rules.no_repeat else "no") for _ in texts]

    made = means(lambda read: read)
    (found,) = translate([Sentence("Nein.")], Means(replies, made.links, made.fits, made.target), RULES)
    assert found.text == "no"
    assert "repeated itself" in found.remarks[0]
    assert [rules.no_repeat for rules in rules_seen] == [0, 4]


def test_half_characters_and_lost_quotation_marks_are_searched_for_again_or_said() -> None:
    for source, bad, better, remark in (
        ("I say.", "ich \ufffdsage", "ich sage", "had an invalid character"),
        ('"I do," he said.', "„Ja, sagte er.", "„Ja“, sagte er.", "lacked a quotation mark"),
    ):
        for again in (better, bad):
            made = means(lambda read: read)

            def replies(
                texts: list[str], rules: Any, phrases: Any, sure: Any, again: str = again, bad: str = bad
            ) -> Any:
                return [Reply(bad if rules.beam == 1 else again) for _ in texts]

            (found,) = translate([Sentence(source)], Means(replies, made.links, made.fits, made.target), RULES)
            assert found.text == again.replace("\ufffd", "")
            assert remark.replace("lacked", "lacked" if again == better else "lacks") in found.remarks[0]


def test_a_glossary_is_read_as_it_must_be_written_or_hidden() -> None:
    glossary = Glossary({"hard drive": "disque dur", "Blue Book": None})

    def again(read: str, phrases: list[Phrase]) -> str:
        assert read == "My disque dur has the {1}."
        assert len(phrases) == 1
        return "Mon disque dur a le {1}." if phrases[0].anywhere else read

    (found,) = translate([Sentence("My Hard Drive has the Blue Book.")], means(swapped, again), RULES, glossary)
    assert found.text == "Mon disque dur a le Blue Book."
    # Where no answer holds it as a word, the term is hidden and written in.
    (found,) = translate(
        [Sentence("My hard drive.")],
        means(lambda read: f"Mon {read[3:]}", lambda *_: "disque durement"),
        RULES,
        glossary,
    )
    assert found.text == "Mon disque dur."


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "server\tserveur\nServer\tordinateur\n",
            "Line 2 of `glossary` contradicts an earlier one: 'Server' must become",
        ),
        ("server\tserveur\nserver\n", "'serveur' and itself"),
        ("a\tb\tc\n", "Line 1 of `glossary` has 3 columns"),
        ("...\tb\n", "a term with a letter or a digit was expected"),
        ("# nothing\n", "has no terms"),
    ],
)
def test_a_glossary_that_contradicts_itself_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(lines)
    with pytest.raises(UserError, match=re.escape(message)):
        Glossary.read(path)
    path.write_bytes(b"\xff\xfe\tx")
    with pytest.raises(UserError, match="not UTF-8"):
        Glossary.read(path)


# --- through a model and the command ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of sentences with random weights: its answers are nonsense of any length."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.bpe([f"{one} {other}" for one, other in PROSE], 600)
    shape = ModelConfig.of(
        source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size, d_model=16, heads=2, d_ff=16,
        encoder_layers=1, decoder_layers=1, max_length=60,
    )  # fmt: skip
    config = Config("pairs", shape, TrainingConfig(), DecodingConfig.of(sentences=True, repairs=REPAIRS))
    path = tmp_path_factory.mktemp("model") / "prose"
    seq2see.Seq2Seq(config, Tokenizers.one(tokenizer), Transformer(shape).eval()).save(path)
    return path


PROSE = [(f"The {a} is {b}.", f"Le {b} a {a}.") for a in ("cat", "dog", "car") for b in ("red", "big", "new")]


def test_trainings_on_prose_make_models_of_sentences() -> None:
    assert cuts_of(PROSE).prose
    assert not cuts_of([(one[:-1], other) for one, other in PROSE]).prose  # no sentences
    assert not cuts_of(PROSE, tokenizer="characters").prose
    assert not cuts_of([("1.", "one."), ("2.", "two."), ("3.", "three.")]).prose


def predict(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["predict", *arguments])


def test_every_number_comes_through_whatever_the_model_says(folder: Path) -> None:
    model = seq2see.load(folder)
    text = "The cat is 42.\n\nThe dog has https://x.com and {name}, 1,234 😀!"
    (answer,) = model.answers([text], max_length=12)
    for item in ("42", "https://x.com", "{name}", "1,234", "😀", "\n\n"):
        assert item in str(answer.output)
    assert answer.repairs
    assert len(answer.parts) == 2
    assert answer.log_probability == pytest.approx(sum(part.log_probability or 0 for part in answer.parts))
    assert model.answers(["The cat."], whole=True)[0].parts == []
    (long,) = model.answers(["The cat is red, " * 100 + "and big."], max_length=8)
    assert long.error is None  # though it has more tokens than the model takes
    assert model.answers(["The cat is red, " * 100], whole=True)[0].error is not None


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_the_length_that_a_caller_asks_for_is_the_limit(folder: Path, engine: str) -> None:
    """An imported model without a length in its settings stops at 19 tokens."""
    model = seq2see.load(folder, engine=engine)
    model.config = replace(
        model.config, decoding=model.config.decoding.but(length_ratio=0.0, length_offset=19, suppressed=(2,))
    )
    lengths = {
        most: len(model.answers(["The cat is red."], max_length=most, whole=True)[0].ids) for most in (None, 5, 30, 59)
    }
    assert lengths == {None: 19, 5: 5, 30: 30, 59: 59}
    with pytest.raises(UserError, match=r"`max_length` is 60, but this model has positions .* at most 59"):
        model.predict(["The cat is red."], max_length=60)


def test_a_document_is_translated_by_the_command_and_gone_on_with(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out, part = (tmp_path / name for name in ("in.html", "out.html", "out.html.part"))
    source.write_bytes(b"<p>The <b>cat</b> is red.</p>\r\n<p>The dog is big.</p>\r\n<p>The car is new.</p>")
    options = [
        "--model",
        str(folder),
        "--format",
        "html",
        "--file",
        str(source),
        "--out",
        str(out),
        "--max-length",
        "8",
    ]
    done = predict(*options)
    assert done.exit_code == 0, done.output
    whole = out.read_bytes()
    assert re.fullmatch(rb"<p>.*<b>.*</b>.*</p>\r\n<p>.*</p>\r\n<p>.*</p>", whole)
    assert not part.exists()

    monkeypatch.setattr(command, "WINDOW", 1)
    asked, real = [], translation.translate

    def until_the_third(sentences: Any, *rest: Any) -> Any:
        asked.append(sentences)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(sentences, *rest)

    out.unlink()
    monkeypatch.setattr(translation, "translate", until_the_third)
    predict(*options)
    assert not out.exists()
    assert len(part.read_text().splitlines()) == 3  # what it is of, and two sentences
    assert "continue with --resume" in str(predict(*options).exception)
    part.write_text(part.read_text() + '["half')
    other = predict(*options[:-1], "9", "--resume")
    assert "other options" in str(other.exception)
    asked[:] = [None] * 3
    assert predict(*options, "--resume").exit_code == 0
    assert len(asked) == 4  # only the third was asked again
    assert out.read_bytes() == whole
    assert not part.exists()


def test_answers_are_held_to_what_is_allowed_by_the_command(tmp_path: Path) -> None:
    allowed = tmp_path / "list.txt"
    allowed.write_text("June 5, 1845\nJanuary 5, 1854\nMay 1, 2000\n")
    done = predict("1845-01-05", "2000-05-01", "--only", str(allowed))
    assert done.output == "January 5, 1854\nMay 1, 2000\n"
    done = predict("1845-01-05", "--pattern", "(June|July) [0-9]+, 1[0-9]{3}", "--beam", "3")
    assert re.fullmatch("(June|July) [0-9]+, 1[0-9]{3}\n", done.output)
    done = predict("1845-01-05", "--prefix", "Ju", "--json")
    assert json.loads(done.output)["output"].startswith("Ju")
    for options, message in (
        (["--only", str(allowed), "--prefix", "J"], "More than one of"),
        (["--pattern", "("], "cannot be used"),
        (["--only", "nowhere.txt"], "There is no file 'nowhere.txt'"),
        (["--format", "text", "--json"], "--json has no meaning"),
        (["--glossary", "nowhere.tsv"], "There is no file 'nowhere.tsv'"),
        (["--engine", "ctranslate2", "--prefix", "J"], "cannot restrict its answers"),
    ):
        done = predict("1845-01-05", *options)
        assert isinstance(done.exception, UserError)
        assert message in str(done.exception)


def lines_of(response: Any) -> list[Any]:
    assert response.status_code == 200
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("text", "The cat is red.  The dog is 42.\n\n - The car is new.\n - The cat is big.\n\nThe dog. The car."),
        (
            "html",
            "<h1>Hello &amp; <em>good</em> bye</h1><p>The <b>dog</b> is 42. The car.</p>\n<ul><li>The dog<li>Car</ul>",
        ),
    ],
)
def test_the_server_sends_sentences_as_they_are_done(folder: Path, form: str, text: str) -> None:
    from fastapi.testclient import TestClient

    from seq2see.serve.app import create_app
    from seq2see.serve.batching import Limits

    model = seq2see.load(folder)
    # a text may be longer, and take more work, than other requests may
    with TestClient(create_app({"prose": model}, Limits(characters=10, document=10, work=1))) as client:
        first, *others = lines_of(client.post("/api/text", json={"input": text, "format": form}))
        found = [one for line in others for one in line["sentences"]]
        assert len(others) > 1  # they did not come all at once
        stays = [part if isinstance(part, str) else None for part in first["parts"]]
        assert len(found) == stays.count(None)
        outputs = iter(one["output"] for one in found)
        written = "".join(next(outputs) if part is None else part for part in stays)
        assert written == model.translate(text, format=form)
        assert any(one.get("repairs") for one in found)
        for one in found:
            answer = model.answers([one["parts"][0]["read"]], whole=True)[0]
            assert "repairs" in one or one["parts"][0]["ids"] == answer.ids
        assert not any("terms" in one for one in found)
        asked = {"input": "The cat is red.", "glossary": {"cat": None, "dog": None}}
        assert lines_of(client.post("/api/text", json=asked))[1]["sentences"][0]["terms"] == 1
        for body, said in (
            ({"input": " "}, "The line is empty: a text was expected."),
            ({"input": "Hi <b", "format": "html"}, "the HTML is broken."),
            ({"input": "a\0b"}, "it has a NUL character."),
            ({"input": "x", "glossary": {"a": "b", "A": "c"}}, "contradicts an earlier one"),
        ):
            refused = client.post("/api/text", json=body)
            assert refused.status_code == 422
            assert said in refused.json()["error"]


def test_a_document_is_given_up_in_the_middle_of_a_run() -> None:
    text, asked = "<b>a</b>" * 1000, count()
    with stopped_when(lambda: next(asked) > 3500), pytest.raises(Stopped):  # after all 3000 tokens are found
        documents.read(text, "html")


def test_an_empty_search_is_one_refused_text_and_the_others_are_answered(folder: Path) -> None:
    model = seq2see.load(folder)
    twice = "The cat is 1987 and 1987."  # both are required, and no sequence of four tokens may come twice
    many = ["The cat.", twice, "The dog is 7."]
    assert len(model.predict(many)) == 3
    model.config = replace(
        model.config, decoding=model.config.decoding.but(suppressed=tuple(range(model.tokenizers.target.size)))
    )
    found = model.answers(["The cat.", "", "The dog."], beam=2, whole=True, probabilities=False)
    assert [one.output for one in found] == [None] * 3
    assert "found no answer that its rules allow" in str(found[0].error)
    assert "empty" in str(found[1].error)
    assert [one.error for one in model.answers(["The cat."], beam=2)] == [found[0].error]


@pytest.mark.parametrize(
    ("data", "form", "message"),
    [
        (b"a\0b\xff", "text", "is binary data"),
        (b"caf\xe9", "text", "is not UTF-8 text (byte 4)"),
        (b"Hello", "srt", "subtitles begin with a number"),
        (b"<p>Hi <b", "html", "the HTML is broken"),
    ],
)
def test_a_bad_document_leaves_nothing_behind(
    folder: Path, tmp_path: Path, data: bytes, form: str, message: str
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(data)
    done = predict("--model", str(folder), "--format", form, "--file", str(source), "--out", str(out))
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_text_whose_reader_leaves_is_given_up(folder: Path) -> None:
    import threading
    import time

    import httpx
    import uvicorn

    from seq2see.serve.app import create_app
    from seq2see.serve.batching import Limits
    from seq2see.serve.server import configured, listen

    limits, listener = Limits(), listen("127.0.0.1", 0)
    app = create_app({"prose": seq2see.load(folder)}, limits)
    server = uvicorn.Server(configured(app, limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        text = "\n".join(f"The cat number {n} is red." for n in range(4000))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/api/text"
        with httpx.stream("POST", address, json={"input": text}, timeout=30) as response:
            assert "parts" in json.loads(next(response.iter_lines()))
        done = -1
        while done != app.state.batcher.items:
            done = app.state.batcher.items
            time.sleep(0.5)
        assert done < 4000
        assert not app.state.batcher.waiting
    finally:
        server.should_exit = True
        thread.join()
