"""Every recorded name has exactly one entry, and its letters are its shape."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
import torch

from conftest import small_model
from seq2see.inspection.glossary import GLOSSARY, entry_of
from seq2see.inspection.trace import trace

SIZES = {"B": 2, "S": 8, "T": 6}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["paper", "learned", "fairseq"])
@pytest.mark.parametrize("batched", [True, False])
def test_names_and_shapes_are_those_of_the_glossary(norm: str, positions: str, batched: bool) -> None:
    model = small_model(norm=norm, positions=positions, embedding_norm=positions == "fairseq")
    c = model.config
    assert c.d_k is not None
    assert c.d_v is not None
    letters = {**SIZES, "D": c.d_model, "H": c.heads, "K": c.d_k, "d_v": c.d_v, "F": c.d_ff, "V": c.target_vocabulary}
    assert len(set(letters.values())) == len(letters), "a mix-up of two letters would go unseen"
    batch = (SIZES["B"],) if batched else ()
    source = torch.randint(11, (*batch, SIZES["S"]))
    target = torch.randint(13, (*batch, SIZES["T"]))
    with trace(model) as t:
        model(source, target)
    for name in t.names:
        matching = [entry for entry in GLOSSARY if fnmatchcase(name, entry.pattern)]
        assert len(matching) == 1, name
        expected = [size for letter in matching[0].shape for size in (batch if letter == "…" else (letters[letter],))]
        assert list(t[name].shape) == expected, name


def test_no_entry_is_idle() -> None:
    recorded = {"probabilities"}
    for norm in ("pre", "post"):
        model = small_model(norm=norm, embedding_norm=norm == "pre")
        with trace(model) as t:
            model(torch.tensor([1]), torch.tensor([1]))
        recorded |= set(t.names)
    for entry in GLOSSARY:
        assert any(fnmatchcase(name, entry.pattern) for name in recorded), entry.pattern


def test_an_entry_says_all_that_there_is_to_say() -> None:
    paper = {"x", "E[x]", "√d·E[x]", "PE", "X", "LN(X)", "Q", "K", "V", "Q·Kᵀ", "Q·Kᵀ/√d_k", "M", "A", "Z", "Z·W^O", "h",
             "FFN(x)", "x + y", "LN(x)", "x'", "memory", "y", "y·W", "P"}  # fmt: skip
    assert {entry.symbol for entry in GLOSSARY} == paper
    for entry in GLOSSARY:
        assert re.fullmatch(r"[A-Z](?![A-Z]).*\.", entry.sentence)
        assert re.fullmatch(r"3\.[1-5](\.[1-3])?", entry.section)
    weights = entry_of("decoder.layers.1.cross_attention.weights")
    assert weights.letters == "(…, H, T, S)"
    assert entry_of("encoder.layers.0.self_attention.weights").letters == "(…, H, S, S)"
    assert entry_of("decoder.embedding.positions").letters == "(T, D)"
