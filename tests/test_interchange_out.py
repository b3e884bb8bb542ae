"""Models of ours in the forms of others and back: Hugging Face, CTranslate2, ONNX, and the Hub."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from typer.testing import CliRunner

import seq2see
from conftest import sweep
from seq2see.cli import app
from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import FolderError, UserError
from seq2see.interchange import reading, to_ctranslate2, to_huggingface, to_onnx
from seq2see.interchange.reading import import_model
from seq2see.kernels.registry import network_of
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import Tokenizers, shipped_models
from seq2see.tokenizers.tokenizer import Tokenizer

DATES = ["1845-01-05", "2025-09-03", "1426-08-10", "1969-07-20"]
TOKENIZER = Tokenizer.characters(["<sos>", "<pad>", "<eos>", *"abcdefghij"])  # M2M100 wants 1 for padding


def small(**settings: Any) -> Seq2Seq:
    """A random model of ours whose norms and biases are not 1 and 0."""
    torch.manual_seed(4)
    shape = dict(source_vocabulary=13, target_vocabulary=13, d_model=16, heads=4, d_ff=24, encoder_layers=2,
                 decoder_layers=2, max_length=40)  # fmt: skip
    config = ModelConfig.of(**{**shape, **settings})
    model = network_of(config)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    rules = DecodingConfig(length_ratio=0.0, length_offset=20)
    return Seq2Seq(
        Config("pairs", config, TrainingConfig(), rules), Tokenizers.one(TOKENIZER), model.eval(), engine="torch"
    )


def to_hf(model: Seq2Seq, out: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of transformers about itself
        return to_huggingface.export(out, model.config, model.transformer, model.tokenizers)


SHAPES: list[dict[str, Any]] = [
    {}, {"norm": "pre"}, {"positions": "halves", "activation": "gelu"}, {"output_bias": True, "norm": "pre"},
    {"share_embeddings": False, "share_output": False}, {"norm": "pre", "share_embeddings": False},
    {"norm": "pre", "share_embeddings": False, "share_output": False}, {"positions": "learned", "embedding_norm": True},
    {"positions": "learned", "embedding_norm": True, "norm": "pre", "scale_embeddings": False},
    {"positions": "fairseq", "norm": "pre"}, {"scale_embeddings": False},
]  # fmt: skip
LIGHT = ({}, {"norm": "pre", "share_embeddings": False}, {"positions": "learned", "embedding_norm": True})
#: All shapes; those that are not in ``LIGHT`` in ``make verify``.
ALL = [pytest.param(shape, marks=[] if shape in LIGHT else pytest.mark.heavy) for shape in SHAPES]


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_a_model_goes_to_hugging_face_and_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = small(**settings)
    compared = to_hf(model, tmp_path / "theirs")
    assert compared.largest < 1e-5
    assert compared.same_tokens == compared.tokens > 50
    if model.config.model.positions in ("paper", "halves"):  # the others put languages around a text
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
        back = seq2see.load(tmp_path / "ours", engine="torch")
        for name in ("d_ff", "dropout", "encoder_layers", "max_length", "share_embeddings", "source_vocabulary"):
            assert getattr(back.config.model, name) == getattr(model.config.model, name), name
        texts = ["abc", "jihgfedcba", "a"]
        assert back.predict(texts) == model.predict(texts)
        first, second = (m.log_probabilities([("abc", "cab")])[0] for m in (back, model))
        assert first == pytest.approx(second, abs=1e-5)


def test_a_difference_is_refused_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_huggingface, "order_of", lambda config: torch.arange(config.d_model))
    with pytest.raises(FolderError, match="does not answer like this one"):
        to_hf(small(), tmp_path / "theirs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "settings",
    [{"positions": "opennmt"}, {"d_k": 3}, {"norm": "pre", "positions": "fairseq", "share_output": False}],
    ids=str,
)
def test_what_hugging_face_cannot_say_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        to_hf(small(**settings), tmp_path / "theirs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_a_model_goes_to_ctranslate2_and_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = small(**settings)
    model.save(tmp_path / "ours")
    parity = to_ctranslate2.export(tmp_path / "ours", model.transformer, model.tokenizers, rules=model.config.decoding)
    assert parity.same_answers == parity.inputs
    import_model(str(tmp_path / "ours/ctranslate2"), tmp_path / "back")
    back = seq2see.load(tmp_path / "back", engine="torch")
    theirs, ours = back.config.model, model.config.model
    for name in ("norm", "activation", "embedding_norm", "scale_embeddings", "heads", "max_length", "positions"):
        assert getattr(theirs, name) == getattr(ours, name), name
    source = torch.tensor([[0, 4, 5, 6, 2]])
    target = torch.tensor([[0, 7, 8]])
    assert torch.allclose(back.transformer(source, target), model.transformer(source, target), atol=1e-5)


@pytest.mark.heavy
def test_onnx_answers_as_ours(tmp_path: Path) -> None:
    model = small(norm="pre", positions="learned", embedding_norm=True, encoder_layers=1, decoder_layers=1)
    compared = to_onnx.export(tmp_path / "onnx", model.config, model.transformer, model.tokenizers)
    assert compared.largest < 1e-5
    assert compared.same_tokens == compared.tokens > 50
    assert sorted(path.name for path in (tmp_path / "onnx").iterdir()) == [
        "decoder.onnx", "encoder.onnx", "onnx.json", "tokenizer.json",
    ]  # fmt: skip


ONNX = dict(norm="pre", positions="learned", embedding_norm=True, d_k=3, d_v=5, encoder_layers=1)


# --- the Hub ---------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Stand in for the Hub: what is uploaded is kept, and handed out again."""
    kept: dict[str, list[str]] = {}
    here = tmp_path_factory.mktemp("hub")

    def found(name: str) -> None:
        if name == "me/none":
            raise OSError("gone\nand more")

    def create(self: object, name: str, private: bool, exist_ok: bool) -> str:
        found(name)
        return f"https://example.org/{name}, private: {private}"

    def upload(self: object, folder_path: Path, **said: Any) -> None:
        shutil.copytree(folder_path, here / said["repo_id"])
        kept[said["repo_id"]] = sorted(path.name for path in folder_path.iterdir())

    def download(name: str, allow_patterns: list[str], local_dir: Path) -> str:
        found(name)
        assert not any(pattern.endswith((".py", "*")) for pattern in allow_patterns)
        return str(shutil.copytree(here / name, local_dir))

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return kept


def test_a_model_is_pushed_and_imported_again(
    hub: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    done = run(app, ["push", "hf:me/small", "--model", "dates", "--private"])
    assert done.exit_code == 0, done.exception
    assert done.stdout.startswith("https://example.org/me/small, private: True: ")
    assert {"README.md", "config.json", "generation_config.json", "model.safetensors"} <= {*hub["me/small"]}
    assert run(app, ["import", "hf:me/small", "--out", str(tmp_path / "back")]).exit_code == 0
    assert seq2see.load(tmp_path / "back", engine="torch").predict(DATES) == seq2see.load("dates").predict(DATES)
    assert str(run(app, ["push", "hf:me/none"]).exception) == "me/none could not be uploaded (gone)."
    gone = run(app, ["import", "hf:me/none", "--out", str(tmp_path / "none")])
    assert str(gone.exception) == "me/none could not be downloaded (gone)."
    for wrong in ("me/small", "hf:"):
        assert f"{wrong!r} is not a place to upload to" in str(run(app, ["push", wrong]).exception)
    monkeypatch.setattr("seq2see.errors.find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs the package huggingface_hub, which is not installed"):
        reading.push(Path(), "me/small")


def test_the_page_of_the_docs_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent.parent / "docs/bring-your-model.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 7
    for line in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, line
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert (tmp_path / "dates-again/ctranslate2/model.bin").is_file()


def test_an_imported_model_learns_on(tmp_path: Path) -> None:
    to_hf(small(), tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    start = seq2see.load(tmp_path / "ours", engine="torch")
    before = start.log_probabilities([("abc", "cba")])[0]
    pairs = [(text, text[::-1]) for text in ("abc", "bcd", "cde", "def", "efg", "fgh", "ghi", "hij")] * 8
    learned = seq2see.fit(pairs, start=start, training={"steps": 12, "learning_rate": 0.01, "warmup": 3})
    assert sum(learned.log_probabilities([("abc", "cba")])[0]) > sum(before)
    assert learned.config.model.positions == "halves"


def test_two_vocabularies_go_to_a_family_of_one(tmp_path: Path) -> None:
    """Pre-norm models become Pegasus, which has one vocabulary: the smaller one is filled up."""
    torch.manual_seed(4)
    sides = Tokenizers(TOKENIZER, Tokenizer.characters(["<pad>", "<sos>", "<eos>", *"xyz"]))
    config = ModelConfig.of(source_vocabulary=13, target_vocabulary=6, d_model=16, heads=4, d_ff=24, encoder_layers=2,
                            decoder_layers=2, max_length=40, norm="pre", share_embeddings=False)  # fmt: skip
    model = network_of(config).eval()
    rules = DecodingConfig(length_ratio=0.0, length_offset=20)
    ours = Seq2Seq(Config("pairs", config, TrainingConfig(), rules), sides, model, engine="torch")
    assert to_hf(ours, tmp_path / "theirs").largest < 1e-5
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    back = seq2see.load(tmp_path / "ours", engine="torch")
    assert back.config.model.target_vocabulary == 6
    assert back.predict(["abc", "jihgfedcba", "a"]) == ours.predict(["abc", "jihgfedcba", "a"])
    refused = back.answers(["q"])[0]  # a tokenizer of characters has no token for what it does not know
    assert refused.output is None
    assert "cannot be split" in str(refused.error)
    assert snippet_of(tmp_path / "theirs") == ours.predict([snippet_text(tmp_path / "theirs")])


def snippet_text(folder: Path) -> str:
    """Return the text that the snippet in the README of an export answers."""
    return str(json.loads(re.findall(r"tokenizer\(\[(.+)\], return", (folder / "README.md").read_text("utf-8"))[0]))


def snippet_of(folder: Path) -> list[str]:
    """Run the snippet in the README of an export, and return what it prints."""
    code = re.findall(r"```python\n(.+?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)[-1]
    said: list[str] = []
    with contextlib.chdir(folder.parent):
        exec(code, {"print": said.extend})
    return said


def test_the_readme_of_an_export_has_what_the_hub_reads_and_a_snippet_that_runs(tmp_path: Path) -> None:
    model = small()
    to_hf(model, tmp_path / "theirs")
    head = (tmp_path / "theirs" / "README.md").read_text("utf-8").split("---\n")[1]
    assert head == "library_name: transformers\npipeline_tag: text2text-generation\ntags:\n- seq2see\n"
    assert snippet_of(tmp_path / "theirs") == model.predict([snippet_text(tmp_path / "theirs")])


# --- every model that ships -------------------------------------------------------------------------------------


#: Texts of people for each model that ships. What is not the same is told with the text.
ASKED: dict[str, list[str]] = {
    "dates": DATES,
    "human-dates": ["le 3 janvier 1845", "3rd of march 2021", "12. oktober 1969", "dec 24 1999"],
    "en-fr": ["Where is the station?", "A man is reading a letter at the window.", "It is raining, and 27 dogs bark."],
    "en-de": ["Where is the station?", "A man is reading a letter at the window.", "It is raining, and 27 dogs bark."],
    "fr-en": ["Où est la gare ?", "Un homme lit une lettre à la fenêtre.", "Il pleut, et 27 chiens aboient."],
}


def by_huggingface(model: Seq2Seq, place: Path, texts: list[str], beam: int) -> list[str]:
    """Their tokenizers, their model, their ``generate``, and no line of ours."""
    import transformers

    assert to_hf(model, place).same
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cutter = transformers.AutoTokenizer.from_pretrained(place)
        own = place / "target" if (place / "target").is_dir() else place
        writer = transformers.AutoTokenizer.from_pretrained(own)
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(place)
        found = []
        for text in texts:
            asked = cutter(text, return_tensors="pt", return_token_type_ids=False)
            limit = model.config.decoding.limit(asked["input_ids"].shape[1], model.config.model.max_length)
            rows = theirs.generate(**asked, num_beams=beam, max_length=limit + 1)
            found += writer.batch_decode(rows, skip_special_tokens=True)
    return [text.strip() for text in found]


def by_ctranslate2(model: Seq2Seq, place: Path, texts: list[str], beam: int) -> list[str]:
    """The engine of CTranslate2 in a copy of the folder."""
    model.save(place)
    parity = to_ctranslate2.export(place, model.transformer, model.tokenizers, rules=model.config.decoding)
    assert parity.same_tokens == parity.tokens
    through = seq2see.load(place, engine="ctranslate2")
    assert through.network.engine_for(len(texts), beam).name.startswith("ctranslate2")
    return through.predict(texts, beam=beam)


def by_onnx(model: Seq2Seq, place: Path, texts: list[str], beam: int) -> list[str]:
    """Greedy answers by onnxruntime, token by token."""
    assert beam == 1
    assert to_onnx.export(place, model.config, model.transformer, model.tokenizers).same
    graphs, rules, found = to_onnx.OnnxModel(place), model.config.decoding, []
    target = model.tokenizers.target
    for text in texts:
        source = model.tokenizers.source.encode(text)
        ids = [target.start]
        while ids[-1] != target.end and len(ids) <= rules.limit(len(source), model.config.model.max_length):
            ids.append(int(graphs.logits([source], [ids])[0, -1].argmax()))
        found.append(target.decode(ids[1:]))
    return found


def check_form(name: str, form: Any, beam: int, place: Path) -> None:
    model = seq2see.load(name, engine="torch")
    plain = model.answerer.folded if name == "human-dates" else str  # its texts are folded by its command
    texts = [plain(text) for text in ASKED[name]]
    source, special = model.tokenizers.source, Special.of(model.tokenizers)
    rules, rows = model.config.decoding.but(beam=beam), source.encode_batch(texts)
    if beam == 1:
        ids = [answer.ids for answer in greedy(model.transformer, rows, special, rules)]
    else:
        ids = [best[0].ids for best in beam_search(model.transformer, rows, special, rules)]
    assert form(model, place, texts, beam) == model.tokenizers.target.decode_batch(ids)


def test_the_models_that_ship_are_those_that_are_tried() -> None:
    assert sorted(ASKED) == shipped_models()


@pytest.mark.parametrize("form", [by_huggingface, by_ctranslate2])
@pytest.mark.parametrize("name", ["dates", "human-dates"])
def test_models_of_dates_answer_the_same_in_other_programs(name: str, form: Any, tmp_path: Path) -> None:
    check_form(name, form, 1, tmp_path / "theirs")


@pytest.mark.heavy  # ONNX's exporter alone takes ten seconds and more
@pytest.mark.parametrize(
    ("form", "beam"), [(by_huggingface, 1), (by_ctranslate2, 1), (by_ctranslate2, 4), (by_onnx, 1)]
)
@pytest.mark.parametrize("name", ASKED)
def test_every_model_that_ships_answers_the_same_in_every_form(name: str, form: Any, beam: int, tmp_path: Path) -> None:
    check_form(name, form, beam, tmp_path / "theirs")


PROGRAMS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[1] / "docs/bring-your-model.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.parametrize("form", sweep(["hf", "onnx"], 1))
def test_the_programs_of_the_documentation_run(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that read an exported model in transformers and in onnxruntime."""
    assert len(PROGRAMS) == 2
    model = seq2see.load("dates", engine="torch")
    if form == "hf":
        to_hf(model, tmp_path / "dates-hf")
    else:
        to_onnx.export(tmp_path / "dates-onnx", model.config, model.transformer, model.tokenizers)
    monkeypatch.chdir(tmp_path)
    program = PROGRAMS[["hf", "onnx"].index(form)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the libraries about themselves
        exec(compile(program, "docs/bring-your-model.md", "exec"), {})
    assert capsys.readouterr().out.strip() == program.rstrip().rsplit("# ", 1)[1]


def test_shipped_dates_come_back_from_ctranslate2(tmp_path: Path) -> None:
    model = seq2see.load("dates", engine="torch")
    assert model.path is not None
    import_model(str(model.path / "ctranslate2"), tmp_path / "back")
    back = seq2see.load(tmp_path / "back", engine="torch")
    spaced = [" ".join(["<sos>", *text, "<eos>"]) for text in DATES]
    rows = back.answers(spaced, beam=1)
    assert [row.ids for row in rows] == [row.ids for row in model.answers(DATES)]
