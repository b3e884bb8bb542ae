"""The module that `export --to web` writes answers as the model does, in Node and in a browser."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import seq2see
from conftest import examples, small_disk, sweep
from seq2see.answering.answer import Answer
from seq2see.cli import main
from seq2see.config import Config, DecodingConfig, TrainingConfig
from seq2see.errors import UserError
from seq2see.page import live, web
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import find
from shipped.written_dates import pairs

ASK = """
import { readFileSync } from "node:fs";
const { folder, texts, options, worker } = JSON.parse(readFileSync(0, "utf-8"));
const { load } = await import(`${folder}/seq2see.js`);
const model = await load(folder, { worker });
const found = [];
for (const text of texts) found.push(await model.answer(text, options));
const whole = model.about.sentences ? await model.translate(texts.join("\\n")) : null;
console.log(JSON.stringify({ found, whole, about: model.about }));
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models, written when they are asked for."""

    class Made(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            self[name] = tmp_path_factory.mktemp("web") / name
            model = seq2see.load(name)
            web.export(self[name], name, model, lambda texts: [one.output for one in model.answers(texts)])
            return self[name]

    return Made()


def node(folder: Path, texts: list[str], worker: bool = True, **options: Any) -> dict[str, Any]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node is not installed")
    asked = json.dumps({"folder": str(folder), "texts": texts, "options": options, "worker": worker})
    run = subprocess.run(
        [program, "--input-type=module", "--eval", ASK], input=asked, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def compare(found: list[dict[str, Any]], expected: list[Answer]) -> None:
    """The same answers, refusals, probabilities and confidence."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["output"] == theirs.output, theirs
        assert (ours["error"] is None) == (theirs.error is None), (ours, theirs)
        assert (ours["confidence"] is None) == (theirs.confidence is None), (ours, theirs)
        assert (ours["remark"] is None) == (theirs.remark is None), (ours, theirs)
        if theirs.log_probability is not None:
            assert ours["logProbability"] == pytest.approx(theirs.log_probability, abs=1e-3, rel=1e-3)
            assert [one["token"] for one in ours["tokens"]] == [one.token for one in theirs.tokens]
            assert ours["finished"] == theirs.finished
        if theirs.confidence is not None:
            assert ours["confidence"] == pytest.approx(theirs.confidence, abs=2e-3)
        assert [one["output"] for one in ours["alternatives"]] == [one.output for one in theirs.alternatives]


def some_dates(count: int) -> list[str]:
    draw = random.Random(5)
    dates = [f"{draw.randint(1000, 9999)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}" for _ in range(count)]
    return [*dates, "2000-02-30", "hello", "", " 1845-01-05", "1845-1-5", "0999-01-01"]


def written(count: int) -> list[str]:
    """Dates as people write them, and texts that are none, or whose month is misspelt or not there."""
    texts = [text for text, _ in pairs(count, 7)]
    draw = random.Random(6)
    broken = []
    for text in texts[: count // 4]:
        place = draw.randrange(len(text) + 1)
        broken.append(text[:place] + draw.choice("aeinrst .0l") + text[place + draw.randint(0, 2) :])
    return [
        *texts,
        *broken,
        "",
        "x" * 90,
        "brunch 5 2020",
        "Decembr 3 1999",
        "0ct 5 2010",
        "31.02.2020",
        "\ud7ff 5 may 2001",
    ]


SENTENCES = [
    "Where is the train station?",
    "I'm very proud of you.",
    "Could you speak more slowly, 😀 please?",
    "Wo ist der Bahnhof, und warum ist er nicht hier?",
    "zxqj wvkk pqrzt mmmw",
    "東京 is far away.",
]


def form(kind: str) -> dict[str, Any]:
    """The tokenizer.json of a model that SentencePiece cuts."""
    model = {"type": kind, "fuse_unk": True, "dropout": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "ignore_merges": False}  # fmt: skip
    marks = {"normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    steps = {"type": "Sequence", "normalizers": [{"type": step} for step in sorted(live.STEPS)]}
    return {
        "model": model,
        "added_tokens": [dict(marks), dict(marks)],
        "pre_tokenizer": {"type": "Metaspace"},
        "post_processor": {"type": "TemplateProcessing"},
        "normalizer": {"type": "Sequence", "normalizers": [steps]},
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "type"), "WordPiece"), (("model", "fuse_unk"), False), (("model", "dropout"), 0.1),
        (("model", "continuing_subword_prefix"), "##"), (("model", "end_of_word_suffix"), "</w>"),
        (("model", "ignore_merges"), True), (("added_tokens", 1, "normalized"), True),
        (("added_tokens", 1, "lstrip"), True), (("added_tokens", 1, "rstrip"), True),
        (("added_tokens", 1, "single_word"), True), (("pre_tokenizer",), None),
        (("pre_tokenizer", "type"), "ByteLevel"), (("post_processor",), None), (("post_processor", "type"), "Roberta"),
        (("normalizer", "normalizers", 0, "normalizers", 0, "type"), "Lowercase"), (("normalizer", "type"), "Lowercase"),
    ],
)  # fmt: skip
def test_the_page_takes_only_tokenizers_that_it_cuts_alike(path: tuple[str | int, ...], value: object) -> None:
    other = form("BPE")
    assert live._is_sentencepiece(other)
    assert live._is_sentencepiece({**form("Unigram"), "normalizer": None})
    inner: Any = other
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert not live._is_sentencepiece(other)


def test_the_names_of_months_are_described_without_accents() -> None:
    months = web.described("human-dates", seq2see.load("human-dates"))["months"]
    assert len(months) == 12
    assert all(names == sorted({*names}) for names in months)
    assert {"february", "fevrier", "thang 2", "2月"} <= {*months[1]}
    assert "février" not in months[1]
    assert web.described("dates", seq2see.load("dates"))["months"] is None


def test_the_page_says_what_a_confidence_means() -> None:
    described = web.described("human-dates", seq2see.load("human-dates"))
    assert described["about"]["confidence"] == "The probability that the whole answer is right."
    assert {*described["confidence"]} == {"weights", "familiar", "language", "languages"}
    plain = web.described("dates", seq2see.load("dates"))
    assert (plain["about"]["confidence"], plain["confidence"]) == (None, None)


def test_a_folder_tells_whether_its_weights_are_rounded() -> None:
    assert live.is_rounded(seq2see.load("human-dates")) is True
    assert live.is_rounded(seq2see.load("dates")) is False


@pytest.mark.parametrize("worker", sweep([True, False], 1))
def test_dates_are_answered_as_python_answers_them(folders: dict[str, Path], worker: bool) -> None:
    texts = some_dates(60)
    compare(node(folders["dates"], texts, worker)["found"], seq2see.load("dates").answers(texts))


def test_dates_of_people_are_answered_as_python_answers_them(folders: dict[str, Path]) -> None:
    count, model = examples(80), seq2see.load("human-dates")
    texts = written(count)
    expected = model.answers(texts)
    compare(node(folders["human-dates"], texts)["found"], expected)
    assert sum(one.error is None for one in expected) > count / 2
    assert sum(one.error is not None for one in expected) > count / 8
    [two] = node(folders["human-dates"], ["03/04/2020"])["found"]
    assert (two["output"], two["readings"]) == (None, ["2020-04-03", "2020-03-04"])
    [month] = node(folders["human-dates"], ["03/04/2020"], order="month")["found"]
    assert month["output"] == "2020-03-04"


@pytest.mark.heavy
def test_sentences_are_answered_as_python_answers_them(folders: dict[str, Path]) -> None:
    model = seq2see.load("en-fr", engine="torch")
    found = node(folders["en-fr"], SENTENCES)
    expected = model.answers(SENTENCES, whole=True)
    compare(found["found"], expected)
    assert [one["confidence"] is None for one in found["found"]] == [False, False, False, True, True, True]
    assert found["whole"] == "\n".join(str(one.output) for one in expected)
    assert found["about"]["sentences"]


@pytest.mark.heavy
def test_several_answers_are_those_of_a_beam(folders: dict[str, Path]) -> None:
    model, texts = seq2see.load("dates", engine="torch"), some_dates(10)
    found = node(folders["dates"], texts, nBest=3, beam=4)["found"]
    expected = model.answers(texts, n_best=3, beam=4)
    compare(found, expected)
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours["alternatives"], theirs.alternatives, strict=True):
            assert one["score"] == pytest.approx(other.score, rel=1e-3)
            assert one["logProbability"] == pytest.approx(other.log_probability, rel=1e-3)


@pytest.mark.parametrize("forced", sweep([True, False], 1))
def test_answers_that_never_end_are_cut_as_python_cuts_them(tmp_path: Path, forced: bool) -> None:
    dates = seq2see.load("dates", engine="torch")
    rules = DecodingConfig.of(length_ratio=0.0, length_offset=9, forced_end=forced)
    config = Config("pairs", dates.config.model, TrainingConfig(), rules)
    model = Seq2Seq(config, dates.tokenizers, dates.transformer)
    texts = ["1845-01-05", "2025-09-03", "１999-05-01", "abc"]
    out = tmp_path / "cut"
    web.export(out, "cut", model, lambda some: [one.output for one in model.answers(some)], inputs=texts)
    for options in ({}, {"n_best": 2, "beam": 3}):
        named = {{"n_best": "nBest"}.get(key, key): value for key, value in options.items()}
        expected = model.answers(texts, **options)
        compare(node(out, texts, **named)["found"], expected)
    assert [one.finished for one in expected[:3]] == [forced] * 3
    assert expected[2].remark == "The input was read as '1999-05-01'."


def test_attention_is_that_of_the_trace(folders: dict[str, Path]) -> None:
    [found] = node(folders["dates"], ["1845-01-05"], attention=True)["found"]
    trace = seq2see.load("dates").trace("1845-01-05")
    attention = found["attention"]
    assert [one["token"] for one in attention["source"]] == trace.source_tokens
    assert attention["source"][1]["span"] == [0, 1]
    assert "".join(attention["target"]) == "January 5, 1845<eos>"
    for layer, weights in enumerate(attention["weights"]):
        ours = trace[f"decoder.layers.{layer}.cross_attention.weights"]
        assert ours.shape == (len(weights), len(weights[0]), len(weights[0][0]))
        assert abs(ours - ours.new_tensor(weights)).max() < 1e-4


@pytest.mark.heavy
def test_the_same_answers_on_thousands(folders: dict[str, Path]) -> None:
    dates, human = some_dates(2000), written(2000)
    compare(node(folders["dates"], dates)["found"], seq2see.load("dates").answers(dates))
    compare(node(folders["human-dates"], human)["found"], seq2see.load("human-dates").answers(human))
    lines = [json.loads(line) for line in (Path(__file__).parent / "challenge-en-fr.jsonl").read_text().splitlines()]
    english = [str(line["text"]) for line in lines][:200]
    assert len(english) == 200
    french = seq2see.load("en-fr", engine="torch").answers(english, whole=True)
    compare(node(folders["en-fr"], english)["found"], french)


# --- in a browser --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("served")
    for name in ("dates", "human-dates"):
        (root / name).symlink_to(folders[name])

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture
def page(context_of: Callable[..., BrowserContext], server: str) -> Iterator[Page]:
    """A page that may ask for nothing but the folder, and whose console stays empty."""
    page, faults = context_of().new_page(), list[str]()
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.route(lambda url: not url.startswith((server, "data:")), lambda route: route.abort())
    yield page
    page.close()
    assert faults == []


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_selector("[data-ready]", state="attached")
    return page


def test_the_example_answers_in_a_browser(page: Page, server: str) -> None:
    opened(page, f"{server}/dates/")
    expect(page.locator("#answer")).to_have_text("January 5, 1845")
    expect(page.locator("#disk")).to_be_hidden()
    assert page.locator("#map td").count() == 16 * 12
    page.fill("#text", "2025-13-01")
    expect(page.locator("#answer")).to_contain_text("months go from 01 to 12")
    assert len(page.workers) == 1
    same = page.evaluate(
        """async () => {
          const { load } = await import("./seq2see.js");
          const here = await load("./", { worker: false });
          const { output } = await here.answer("1426-08-10");
          here.close();
          return [output, here.about.name];
        }"""
    )
    assert same == ["August 10, 1426", "dates"]


def test_a_page_that_may_start_no_worker_answers_itself(page: Page, server: str) -> None:
    page.add_init_script("window.Worker = class { constructor() { throw new Error('none'); } };")
    opened(page, f"{server}/dates/")
    expect(page.locator("#answer")).to_have_text("January 5, 1845")
    assert page.workers == []


def test_a_folder_that_is_not_there_is_named(page: Page, server: str, folders: dict[str, Path]) -> None:
    opened(page, f"{server}/human-dates/")
    said = page.evaluate(
        """async () => (await import("./seq2see.js")).load("data:text/plain,").catch((error) => error.message)"""
    )
    assert said


def test_the_field_reads_dates_as_people_write_them(page: Page, server: str) -> None:
    opened(page, f"{server}/human-dates/")
    field, text, said = (page.locator(f"#birthday{part}") for part in ("", " input", " p"))
    value = "document.querySelector('#birthday').value"
    sent = "[...new FormData(document.querySelector('#form'))].join()"
    valid = "document.querySelector('#form').checkValidity()"
    assert page.evaluate(valid) is False  # it is required
    text.fill("le 3 janvier 1845")
    expect(field).to_have_attribute("data-state", "read")
    expect(said).to_have_text(re.compile("January 3, 1845"))
    assert (page.evaluate(value), page.evaluate(sent), page.evaluate(valid)) == (
        "1845-01-03", "birthday,1845-01-03", True,
    )  # fmt: skip
    text.fill("no idea")
    expect(field).to_have_attribute("data-state", "refused")
    assert (page.evaluate(value), page.evaluate(sent), page.evaluate(valid)) == ("", "", False)
    expect(text).to_have_attribute("aria-invalid", "true")
    text.fill("03/04/2020")
    expect(field).to_have_attribute("data-state", "two")
    assert page.evaluate(valid) is False
    page.get_by_role("button", name="March 4, 2020").click()
    assert (page.evaluate(value), page.evaluate(valid)) == ("2020-03-04", True)
    page.evaluate("document.querySelector('#birthday').setAttribute('order', 'day')")
    expect(said).to_have_text(re.compile("April 3, 2020"))
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#sent")).to_contain_text("birthday=2020-04-03")
    page.evaluate("document.querySelector('#form').reset()")
    expect(field).to_have_attribute("data-state", "empty")
    assert page.get_by_label("Birthday, as you would write it").count() >= 1


# --- the command ---------------------------------------------------------------------------------------


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["seq2see", "export", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_the_command_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "field"
    code, said = run("--model", "human-dates", "--to", "web", str(out), capsys=capsys)
    assert code == 0
    assert "MB" in said
    files = {path.name for path in out.iterdir()}
    assert files == {"seq2see.js", "seq2see.d.ts", "worker.js", "model.json", "model.safetensors", "index.html",
                     "human-date.js", "package.json", "README.md", "card.md"}  # fmt: skip
    assert sum(path.stat().st_size for path in out.iterdir()) < 1.75e6
    assert '"2024年2月29日"' in (out / "model.json").read_text(encoding="utf-8")  # as letters, not as numbers
    assert (out / "model.safetensors").read_bytes() == (find("human-dates") / "model.safetensors").read_bytes()
    small = tmp_path / "small"
    assert run("--to", "web", "--out", str(small), "--quantization", "int8", capsys=capsys)[0] == 0
    assert (small / "model.safetensors").stat().st_size < 0.6 * (find("dates") / "model.safetensors").stat().st_size
    assert not (small / "human-date.js").exists()


def test_what_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--to", "web", capsys=capsys) == (2, "seq2see: --to web needs a folder to write to: add --out DIR.")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    code, said = run("--to", "web", str(tmp_path / "there"), capsys=capsys)
    assert (code, "exists already" in said) == (2, True)
    code, said = run("--to", "web", str(tmp_path / "a"), "--out", str(tmp_path / "b"), capsys=capsys)
    assert (code, "Two folders" in said) == (2, True)
    code, said = run("--to", "web", str(tmp_path / "a"), "--quantization", "int4", capsys=capsys)
    assert (code, "float32 or int8" in said) == (2, True)
    model = seq2see.load("dates")
    model.config = Config("dates", model.config.model, TrainingConfig(), DecodingConfig.of(no_repeat=2))
    with pytest.raises(UserError, match="no_repeat"):
        web.export(tmp_path / "a", "dates", model, lambda texts: [])
    with small_disk(50_000), pytest.raises(UserError, match="could not be written"):
        web.export(tmp_path / "a", "dates", seq2see.load("dates"), lambda texts: [])
    if shutil.which("node"):
        with pytest.raises(UserError, match="otherwise than the model"):
            web.export(tmp_path / "a", "dates", seq2see.load("dates"), lambda texts: ["wrong"] * len(texts))
        monkeypatch.setattr(web, "SECONDS", 0.001)
        with pytest.raises(UserError, match=r"did not answer \d+ texts in 0\.001 seconds\. Nothing was written"):
            web.export(tmp_path / "a", "dates", seq2see.load("dates"), lambda texts: [])
    assert not [path for path in tmp_path.iterdir() if path.name != "there"]
