"""Where each token of a target belongs in its source, how training uses it, chained pairs, and invented texts."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from conftest import small_model
from seq2see.config import Config, TrainingConfig
from seq2see.data.batching import Batch, Batches, PackedBatch, PackedBatches, Ragged
from seq2see.data.places import with_copies, with_places
from seq2see.data.variation import chained, invented, made_up, varied
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training.learner import Objective, guided_in
from seq2see.training.loop import Trainer

LETTERS = "abcdefgh"


def words(count: int) -> list[tuple[list[int], list[int]]]:
    """Random words of a language in which ``g h`` (9, 10) is one sound, and ``x`` (6) is two; others are one each."""
    random, found = Random(1), []
    for _ in range(count):
        source: list[int] = []
        target: list[int] = []
        for _ in range(random.randint(2, 5)):
            letter = random.choice((3, 4, 5, 6, 9))
            source += [9, 10] if letter == 9 else [letter]
            target += {6: [26, 27], 9: [29]}.get(letter, [letter + 20])
        found.append((source, target))
    return found


def spoken(source: list[int]) -> list[int]:
    """Say a source of that language."""
    target = []
    for letter in source:
        target += {6: [26, 27], 9: [], 10: [29]}.get(letter, [letter + 20])
    return target


def sides(pairs: list[tuple[list[int], list[int]]]) -> tuple[Ragged, Ragged]:
    return tuple(Ragged.of([[1, *pair[side], 2] for pair in pairs]) for side in (0, 1))  # type: ignore[return-value]


def rows(side: Ragged) -> list[list[int]]:
    return [side.values[a:b].tolist() for a, b in zip(side.offsets[:-1], side.offsets[1:], strict=True)]


def test_each_token_of_a_target_has_its_place_in_the_source() -> None:
    """Letters and sounds that belong together are found; starts and texts that are not aligned have no place."""
    pairs = words(200)
    source, target = sides([*pairs, ([3], [23] * 5)])
    found = with_places(source, target)
    assert found.places is not None
    right = 0
    for row, (letters, sounds) in enumerate(pairs):
        places = found.places[found.offsets[row] : found.offsets[row + 1]].tolist()
        assert places[0] == -1
        assert places[-1] == len(letters) + 1  # the end belongs to the end
        said = [spoken(letters[:place]) for place in places[1:-1]]  # up to the letter that a sound belongs to
        right += all(sounds[: at + 1] == so_far[: at + 1] for at, so_far in enumerate(said))
    assert right > 180
    assert set(found.places[found.offsets[200] :].tolist()) == {-1}


def added_by(settings: TrainingConfig) -> tuple[Transformer, Batch, float]:
    """Return a model, a padded batch, and what guidance adds to its loss: the same packed, and read once or twice."""
    too_long = ([3], [23, 24, 23, 24, 23])  # it cannot be aligned
    source, target = sides([*words(30), too_long])
    target = with_places(source, target)
    model = small_model(norm="pre", dropout=0.0, source_vocabulary=32, target_vocabulary=32).train()
    without = Objective(model, settings.but(guided=0.0, guided_memory=0.0), 0)
    objective = Objective(model, settings, 0)
    padded = Batches(source, target, (0, 0), 10**6, seed=0).everything()
    packed = PackedBatches(source, target, (0, 0), 640, seed=0).batch(np.arange(31))
    losses = []
    for batch in (padded, packed, padded.twice(), packed.twice()):
        masks = batch.masks() if isinstance(batch, PackedBatch) else None
        tokens = (batch.target_out != 0).sum()
        losses.append(float((objective(batch, masks, tokens) - without(batch, masks, tokens)).detach()))
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-4)
    assert losses[0] > 0.1
    return model, padded, losses[0]


def test_the_guided_head_is_told_where_to_look() -> None:
    settings = TrainingConfig.of(guided=2.0)
    model, padded, added = added_by(settings)
    kept: dict[str, torch.Tensor] = {}
    attention = guided_in(model, settings)
    assert attention is model.decoder.layers[1].cross_attention
    assert attention is not None
    attention.recorder, attention.path = (lambda path, x: kept.setdefault(path, x)), "it"
    model(padded.source, padded.target_in, padded.source_mask)
    weights = kept["it.weights"][:, 0]  # (B, T, S) of the first head
    assert padded.places is not None
    right = weights.gather(-1, padded.places.clamp(min=0)[..., None]).squeeze(-1)
    by_hand = -(right.log() * (padded.places >= 0)).sum() * 2.0 / padded.tokens
    assert added == pytest.approx(float(by_hand.detach()), rel=1e-4)


def test_the_memory_of_a_source_token_is_told_its_target_tokens() -> None:
    model, padded, added = added_by(TrainingConfig.of(guided_memory=2.0, label_smoothing=0.0))
    said = model.output(model.encode(padded.source, padded.source_mask)).log_softmax(-1)  # (B, S, V)
    assert padded.places is not None
    by_hand = [
        -said[row, place, right]
        for row, (places, rights) in enumerate(zip(padded.places, padded.target_out, strict=True))
        for place, right in zip(places.tolist(), rights.tolist(), strict=True)
        if place >= 0
    ]
    assert added == pytest.approx(2.0 * torch.stack(by_hand).sum().item() / padded.tokens, rel=1e-4)


def test_nothing_is_guided_where_the_sides_do_not_come_in_order() -> None:
    tokenizer = Tokenizer.characters_of([LETTERS])
    tokenizers = Tokenizers(tokenizer, tokenizer)
    drawn = Random(1)
    texts = ["".join(drawn.sample(LETTERS, 6)) for _ in range(200)]
    config = Config("pairs", small_model(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size).config,
                    TrainingConfig.of(guided=1.0, guided_memory=0.5))  # fmt: skip
    for pairs, guided in (([(text, text) for text in texts], 1.0), ([(text, text[::-1]) for text in texts], 0.0)):
        trainer = Trainer(config, tokenizers, pairs, pairs[:5])
        assert trainer.learner.settings.guided == guided
        assert trainer.learner.settings.guided_memory == guided / 2
        assert trainer.config.training.guided == 1.0  # as it was asked for: it can be resumed


def test_made_up_sources_look_like_the_others_and_are_new() -> None:
    pairs = words(100)
    source, _ = sides(pairs)
    found = made_up(source, 50, Random(1))
    known = {tuple(row) for row in rows(source)}
    assert len(found) == len({tuple(row) for row in found}) == 50
    assert not known & {tuple(row) for row in found}
    threes = {tuple(row[place : place + 3]) for row in known for place in range(len(row) - 2)}
    assert all(tuple(row[place : place + 3]) in threes for row in found for place in range(len(row) - 2))
    assert made_up(Ragged.of([[1, 3, 2]]), 5, Random(1)) == []


def test_chained_pairs_are_two_pairs_with_an_end_between_them() -> None:
    """Both sides hold the same two pairs in the same order; what is too long is left out; each draw differs."""
    pairs = words(50)
    of_source = {tuple(source): target for source, target in pairs}
    draw = np.random.default_rng(1)
    source, target = chained(sides(pairs), 200, 18, draw)
    assert len(source.lengths) == len(target.lengths) > 20
    assert max(source.lengths.max(), target.lengths.max()) <= 18
    for row in range(len(source.lengths)):
        ids = [side.values[side.offsets[row] : side.offsets[row + 1]].tolist() for side in (source, target)]
        for one in ids:
            assert (one[0], one[-1], one.count(1), one.count(2)) == (1, 2, 1, 2)
        middle = ids[0].index(2)
        first, second = ids[0][1:middle], ids[0][middle + 1 : -1]
        assert ids[1] == [1, *of_source[tuple(first)], 2, *of_source[tuple(second)], 2]
    assert len(set(map(int, chained(sides(pairs), 200, 18, draw)[0].lengths - 1))) > 3
    assert len(chained(sides(pairs), 200, 4, draw)[0].lengths) == 0


FORMS = [("gabbelhuff <V> <PST>", "gabbelhuffte"), ("stranomi <V> <PTCP>", "gestranomit"), ("af <V> <PST>", "og")]


def cut_forms() -> tuple[tuple[Ragged, Ragged], tuple[Tokenizer, Tokenizer]]:
    """Cut lemmas with features, and their forms; the vocabularies number the letters differently."""
    sources, targets = zip(*FORMS, strict=True)
    both = Tokenizer.features(sources), Tokenizer.characters_of(targets)
    source, target = Ragged.cut(both[0], sources), Ragged.cut(both[1], targets)
    return (source, with_copies(source, target, (both[0].vocabulary(), both[1].vocabulary()))), both


def test_invented_stems_are_the_same_on_both_sides() -> None:
    """A new stem replaces the old one in lemma and form, and all that the endings depend on stays."""
    given, (source, target) = cut_forms()
    seen = set()
    for seed in range(20):
        made = invented(given, 1.0, np.random.default_rng(seed))
        assert np.array_equal(made[1].known_places, given[1].known_places)
        lemmas, forms = source.decode_batch(rows(made[0])), target.decode_batch(rows(made[1]))
        lemma, _, features = lemmas[0].partition(" ")
        assert features == "<V> <PST>"
        assert forms[0] == lemma + "te"
        assert (lemma[0], lemma[-3:], len(lemma)) == ("g", "uff", 10)
        assert forms[1] == f"ge{lemmas[1].partition(' ')[0]}t"
        assert (lemmas[2], forms[2]) == FORMS[2]
        assert set(lemma[1:-3]) <= set("abbelhtrano")  # letters from the middle of stems
        seen.add(lemma)
    assert len(seen) > 5
    unchanged = invented(given, 0.0, np.random.default_rng(1))
    assert np.array_equal(unchanged[0].values, given[0].values)
    assert [rows(side) for side in given] == [rows(side) for side in cut_forms()[0]]  # the data stay as they are


def test_training_invents_stems() -> None:
    """A trainer finds the copied letters, and each epoch has other stems."""
    given, both = cut_forms()
    settings = TrainingConfig.of(invented=1.0)
    epochs = [varied(given, both, settings, number, 40)[0].values.tolist() for number in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    shape = small_model(source_vocabulary=both[0].size, target_vocabulary=both[1].size).config
    config = Config("forms", shape, TrainingConfig.of(invented=0.5, guided=1.0, steps=2, warmup=1))
    trainer = Trainer(config, Tokenizers(*both), FORMS, FORMS)
    assert trainer.learner.settings.guided == 1.0
    assert np.array_equal(trainer.pairs.sides[1].known_places, given[1].known_places)
    assert len(list(trainer.steps())) == 2
