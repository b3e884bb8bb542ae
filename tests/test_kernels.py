"""The paper's files hold the paper alone, and each replacement of a class in them gives the same numbers."""

from __future__ import annotations

import ast
import copy
import inspect
import io
import os
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

import seq2see
from conftest import several_models, small_model
from seq2see.errors import UserError
from seq2see.inspection.trace import trace
from seq2see.kernels.ensemble import is_written
from seq2see.kernels.layers import FOREIGN
from seq2see.kernels.registry import REPLACEMENTS, network_of, with_kernels, without_kernels
from seq2see.kernels.shared import Cache, DecoderCache, PackedMask
from seq2see.model import attention as attention_module
from seq2see.model.masks import CAUSAL, EVERYTHING, Mask
from seq2see.model.sublayers import AddNorm
from seq2see.model.transformer import Transformer

BROKEN = {
    "the scores are not divided": (attention_module, "written_attention", " / math.sqrt(q.shape[-1])", ""),
    "nothing is masked": (
        attention_module,
        "written_attention",
        "scaled if allowed is None else",
        "scaled if True else",
    ),
    "there is no residual": (AddNorm, "forward", "x + self.dropout(", "self.dropout("),
}


PACKAGE = Path(seq2see.__file__).parent
MODEL = PACKAGE / "model"
DATES = ["1845-01-05", "2025-09-03", "1999-12-31", "1000-02-28"]
KEYS = Mask(keys=torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))


# --- the paper alone -------------------------------------------------------------------------------------------------


def code_lines(text: str) -> int:
    """Count the lines of code: no blank ones, comments and docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            docstrings |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    empty = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    return len(lines - docstrings)


def test_the_papers_files_hold_at_most_250_lines_of_code() -> None:
    assert {path.stem for path in MODEL.glob("*.py")} == {
        "__init__", "attention", "decoder", "encoder", "masks", "positions", "sublayers", "transformer",
    }  # fmt: skip
    assert [path for path in MODEL.rglob("*") if path.is_dir() and path.name != "__pycache__"] == []
    assert sum(code_lines(path.read_text(encoding="utf-8")) for path in MODEL.glob("*.py")) <= 250


def test_the_papers_files_import_torch_the_standard_library_and_the_config_alone() -> None:
    for path in MODEL.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            for name in names:
                ours = name == "seq2see.config" or name.startswith("seq2see.model.")
                assert ours or name.split(".")[0] in {"torch", *sys.stdlib_module_names}, (path.name, name)


# --- every replacement equals what is written ------------------------------------------------------------------------


def x_of(*shape: int) -> Tensor:
    return torch.randn(*shape, 12, dtype=torch.float64)


def attention(path: str) -> list[tuple[str, Any]]:
    x, source = x_of(2, 5), x_of(2, 5)
    source = x if "self" in path else source
    return [(path, (x, source, mask)) for mask in (EVERYTHING, CAUSAL, KEYS)] + [(path, (x[0], source[0]))]


def ids() -> Tensor:
    return torch.randint(0, 11, (2, 5))


#: For each replacement, where it stands in a small model, and what it is asked for.
CASES: dict[str, Callable[[], list[tuple[str, Any]]]] = {
    "Transformer": lambda: [("", (ids(), ids(), mask)) for mask in (EVERYTHING, KEYS)] + [("", (ids()[0], ids()[0]))],
    "Encoder": lambda: [("encoder", (ids(), mask)) for mask in (EVERYTHING, KEYS)],
    "Decoder": lambda: [("decoder", (ids(), x_of(2, 5), mask)) for mask in (EVERYTHING, KEYS)],
    "DecoderLayer": lambda: [("decoder.layers.1", (x_of(2, 5), x_of(2, 5), CAUSAL, KEYS))],
    "self_attention": lambda: [
        *attention("encoder.layers.0.self_attention"), *attention("decoder.layers.0.self_attention"),
    ],
    "cross_attention": lambda: attention("decoder.layers.1.cross_attention"),
    "AddNorm": lambda: [("encoder.layers.0.feed_forward_norm", (x_of(4), torch.sin))],
    "FeedForward": lambda: [("encoder.layers.0.feed_forward", (x_of(4),))],
    "Embedding": lambda: [("decoder.embedding", (ids(),))],
}  # fmt: skip


def both(**settings: Any) -> tuple[Transformer, Transformer]:
    """A small model as it is written, and with all replacements."""
    replaced = small_model(**settings).double()
    return without_kernels(copy.deepcopy(replaced)), replaced


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "activation": "gelu", "positions": "learned"}])
@pytest.mark.parametrize("name", [*REPLACEMENTS, *(CASES.keys() - REPLACEMENTS.keys())])
def test_every_replacement_equals_what_is_written(name: str, settings: dict[str, Any], training: bool) -> None:
    written, replaced = (model.train(training) for model in both(dropout=0.0, **settings))
    torch.manual_seed(1)
    for path, given in CASES[name]():
        ours, theirs = replaced.get_submodule(path), written.get_submodule(path)
        assert type(ours) is REPLACEMENTS[name]
        assert type(theirs).__module__.startswith("seq2see.model.")
        assert isinstance(ours, type(theirs))
        torch.testing.assert_close(ours(*given), theirs(*given), atol=1e-12, rtol=1e-12)


def test_a_network_has_all_replacements_or_none() -> None:
    model = small_model()
    names = [*model.state_dict()]
    classes = {type(module) for module in model.modules()}
    assert set(REPLACEMENTS.values()) <= classes
    assert not is_written(model)
    without_kernels(model)
    assert is_written(model)
    assert not set(REPLACEMENTS.values()) & {type(module) for module in model.modules()}
    assert {type(module) for module in with_kernels(model).modules()} == classes
    assert [*model.state_dict()] == names == [*Transformer(model.config).state_dict()]


def test_single_steps_equal_what_is_written_at_once() -> None:
    written, replaced = both()
    source, target = ids(), ids()
    expected = written(source, target, KEYS)
    cache = replaced.empty_cache()
    memory = replaced.encode(source, KEYS)
    found = [replaced.decode(target[:, t : t + 1], memory, KEYS, cache) for t in range(5)]
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-12, rtol=1e-12)
    assert isinstance(cache, DecoderCache)
    kept = Cache()
    attention = replaced.decoder.layers[0].cross_attention
    attention(memory[:, :1], memory, KEYS, kept)
    assert kept.k is not None
    assert kept.k.shape[1] == 5


def test_packed_sentences_equal_what_is_written_alone() -> None:
    written, replaced = both()
    lengths = [3, 5]
    of = torch.arange(2).repeat_interleave(torch.tensor(lengths))
    place = torch.cat([torch.arange(length) for length in lengths])
    source, target = ids()[0].repeat(2)[:8], ids()[1].repeat(2)[:8]
    own = PackedMask(sentences=(of, of))
    memory = replaced.encode(source, own, place)
    found = replaced.decode(target, memory, own, None, PackedMask(causal=True, sentences=(of, of)), place)
    parts = zip(source.split(lengths), target.split(lengths), strict=True)
    expected = torch.cat([written(one, other) for one, other in parts])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    "foreign",
    [*({"positions": order} for order in FOREIGN), {"embedding_norm": True}, {"scale_embeddings": False}],
    ids=str,
)
def test_a_foreign_embedding_stays_in_a_written_network(foreign: dict[str, Any]) -> None:
    written, replaced = both(**foreign)
    source, target = ids(), ids()
    assert is_written(written)
    torch.testing.assert_close(written(source, target), replaced(source, target), atol=1e-12, rtol=1e-12)
    with pytest.raises(ValueError, match="network_of"):
        Transformer(replaced.config)
    paper, seeded = ({"positions": "paper"}, {"embedding_norm": False, "scale_embeddings": True})
    plain = network_of(replaced.config.but(**paper, **seeded)).double()
    plain.load_state_dict({k: v for k, v in replaced.state_dict().items() if k in plain.state_dict()})
    assert (plain(source, target) - replaced(source, target)).abs().max() > 1e-3


# --- the engine that answers as it is written ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"beam": 4}, {"beam": 4, "n_best": 3}], ids=str)
def test_the_written_engine_gives_the_same_answers(options: dict[str, Any]) -> None:
    ours, written = seq2see.load("dates"), seq2see.load("dates", engine="written")
    assert written.network.engine_for(1).name == "written, float32"
    assert is_written(written.transformer)
    if "n_best" not in options:
        assert written.predict(DATES, **options) == ours.predict(DATES, **options)
    for one, other in zip(ours.answers(DATES, **options), written.answers(DATES, **options), strict=True):
        assert (one.output, one.ids) == (other.output, other.ids)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert [more.output for more in one.alternatives] == [more.output for more in other.alternatives]
        assert len(one.alternatives) == options.get("n_best", 1) - 1


def test_the_written_engine_answers_inputs_of_many_lengths_and_what_is_allowed() -> None:
    texts = ["3 May 2021", "the 21st of December, 1999", "31/12/99", "1 mars 1888"]
    ours, written = (seq2see.load("human-dates", engine=engine) for engine in ("torch", "written"))
    for options in ({}, {"beam": 3, "n_best": 2}, {"only": ["2021-05-03", "1999-12-21"]}):
        one, other = (model.answers(texts, **options) for model in (ours, written))
        assert [(found.output, found.error) for found in one] == [(found.output, found.error) for found in other]


def test_the_written_engine_answers_for_an_ensemble() -> None:
    ours = several_models()
    written = seq2see.Seq2Seq(ours.config, ours.tokenizers, copy.deepcopy(ours.network.inner()), engine="written")
    assert is_written(written.network.inner())
    assert not is_written(ours.network.inner())
    texts = ["bcd", "ee", "abcdef", "jihg"]
    for options in ({}, {"beam": 3}):
        assert written.predict(texts, **options) == ours.predict(texts, **options)


def test_a_written_network_is_traced_and_edited_like_any_other() -> None:
    ours, written = seq2see.load("dates", engine="torch"), seq2see.load("dates", engine="written")
    one, other = (model.trace(DATES[0]) for model in (ours, written))
    assert one.output == other.output
    assert one.names == other.names
    for name in one.names:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        written.transformer.output.weight.zero_()
    assert written.predict(DATES) != ours.predict(DATES)
    with trace(written.transformer, edit={"encoder.memory": 0.0}):
        assert written.predict(DATES) is not None


def test_a_reader_who_changes_a_file_sees_another_answer(tmp_path: Path) -> None:
    package = tmp_path / "seq2see"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("models", "static", "__pycache__"))
    file = package / "model" / "attention.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(" / math.sqrt(q.shape[-1])", ""), encoding="utf-8")

    def answer(engine: str) -> str:
        command = [sys.executable, "-m", "seq2see", "predict", DATES[0], "--engine", engine, "--model"]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [*command, str(PACKAGE / "models" / "dates")], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert answer("auto") == "January 5, 1845"
    assert answer("written") != "January 5, 1845"


def test_an_engine_that_is_not_there_is_refused_with_the_names_of_those_that_are() -> None:
    with pytest.raises(UserError, match=r"no engine 'writen'\. Did you mean 'written'"):
        seq2see.load("dates", engine="writen")


@pytest.mark.parametrize("what", BROKEN)
def test_a_line_that_is_changed_changes_the_answers(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is changed in the text of the function, as a reader would do it."""
    model = seq2see.load("dates", engine="written")
    before, default = model.predict(DATES), seq2see.load("dates")
    owner, name, old, new = BROKEN[what]
    function = getattr(owner, name)
    text = dedent(inspect.getsource(function))
    assert old in text
    names = dict(vars(sys.modules[function.__module__]))
    exec(text.replace(old, new), names)
    monkeypatch.setattr(owner, name, names[name])
    for options in ({}, {"beam": 4}):
        assert model.predict(DATES, **options) != before
    assert default.predict(DATES) == before
