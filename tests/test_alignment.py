"""Word alignments from cross-attention: what belongs to what, and where it stands."""

from __future__ import annotations

import torch

import seq2see
from seq2see.inspection.alignment import align, links_of, words_of


def test_tokens_are_gathered_into_words() -> None:
    source, target = "a big cat", "un chat"
    assert words_of("l'homme, là") == [(0, 7), (7, 8), (9, 11)]
    source_tokens = [(0, 0), (0, 1), (1, 5), (5, 7), (7, 9), (9, 9)]  # <sos> a| big| c|at <eos>
    target_tokens = [(0, 2), (2, 5), (5, 7), (7, 7)]  # un| ch|at <eos>
    weights = torch.tensor([
        [0.5, 0.4, 0.0, 0.1, 0.0, 0.0],
        [0.0, 0.0, 0.3, 0.2, 0.2, 0.3],
        [0.0, 0.1, 0.3, 0.3, 0.3, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ])  # fmt: skip
    links = links_of(weights, source_tokens, target_tokens, words_of(source), words_of(target))
    assert [(link.source, link.target) for link in links] == [(0, 0), (2, 1)]
    assert (links[1].source_span, links[1].target_span) == ((6, 9), (3, 7))
    assert abs(links[0].weight - 0.8) < 1e-6
    assert links_of(weights, source_tokens, target_tokens, [], words_of(target)) == []


def test_the_parts_of_a_date_are_found_where_they_stand() -> None:
    model = seq2see.load("dates", engine="torch")
    found = align(model.transformer, model.tokenizers, "1845-01-05")
    assert found.target == "January 5, 1845"
    assert len(found.pharaoh.split()) == 4
    for link in found.links:
        assert 0 < link.weight <= 1
    given = align(model.transformer, model.tokenizers, "1845-01-05", "January 5, 1845")
    assert given == found
    pieces = {found.target[slice(*k.target_span)]: found.source[slice(*k.source_span)] for k in found.links}
    assert (pieces["January"], pieces["5"], pieces["1845"]) == ("01", "05", "1845")
