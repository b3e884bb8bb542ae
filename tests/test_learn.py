"""The Transformer in one file answers as ours does."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import seq2see
from seq2see.tasks.dates import splits

ROOT = Path(__file__).parent.parent
ONE_FILE = ROOT / "lessons" / "transformer.py"
DATES = ROOT / "src" / "seq2see" / "models" / "dates"


def module_of(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def one_file() -> Any:
    return module_of(ONE_FILE).Transformer(DATES)


def test_the_one_file_has_at_most_70_lines_and_needs_torch_and_safetensors_only() -> None:
    text = ONE_FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 70
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name.split(".")[0]
        for node in imports
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert names == {"json", "sys", "tomllib", "pathlib", "torch", "safetensors"}


@pytest.mark.parametrize("text", ["1845-01-05", "2025-09-03"])
def test_memory_and_logits_of_the_one_file_are_ours(one_file: Any, text: str) -> None:
    ours = seq2see.load("dates").trace(text)
    memory = one_file.stack("encoder", ours.source_ids)
    logits = one_file.linear("output", one_file.stack("decoder", ours.target_ids, memory))
    torch.testing.assert_close(memory, ours["encoder.memory"], atol=1e-4, rtol=0)
    torch.testing.assert_close(logits, ours["logits"], atol=1e-4, rtol=0)


def test_the_one_file_answers_500_dates_as_we_do(one_file: Any) -> None:
    """The likeliest token after each part of our answer is the next of it, so it is what the file writes."""
    model = seq2see.load("dates")
    texts = [source for source, _ in splits(500, 0, 0, seed=50)[0]]
    answers = model.predict(texts)
    for text, answer in zip(texts, answers, strict=True):
        source, target = model.tokenizers.source.encode(text), model.tokenizers.target.encode(answer)
        logits = one_file.linear("output", one_file.stack("decoder", target[:-1], one_file.stack("encoder", source)))
        assert logits.argmax(-1).tolist() == target[1:]
    assert [one_file.answer(text) for text in texts[:5]] == answers[:5]


def test_the_one_file_is_a_command() -> None:
    for given in (["1845-01-05", "2025-09-03"], [str(DATES), "1845-01-05", "2025-09-03"]):
        done = subprocess.run([sys.executable, str(ONE_FILE), *given], capture_output=True, text=True, check=True)
        assert done.stdout == "January 5, 1845\nSeptember 3, 2025\n"
    asked = subprocess.run([sys.executable, str(ONE_FILE)], capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    assert "python lessons/transformer.py [FOLDER] TEXT..." in asked.stderr
