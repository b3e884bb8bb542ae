"""Ensembles: several models that learn together, answer together, live in one folder, and teach one model."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import seq2see
from conftest import several_models, small_model
from seq2see.cli import app
from seq2see.config import TrainingConfig
from seq2see.data.batching import Batch, Batches, PackedBatches, Ragged
from seq2see.decoding.both_ways import PROPOSED, engine_of, log_probabilities, turned
from seq2see.decoding.hypothesis import PAPER, Special
from seq2see.decoding.search import beam_search, greedy
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import ConfigError, UserError
from seq2see.kernels.ensemble import Ensemble, averaged, member_of, reads_backward
from seq2see.kernels.registry import network_of
from seq2see.model.masks import Mask
from seq2see.model.transformer import at_rest
from seq2see.seq2seq import Seq2Seq
from seq2see.training.learner import Learner, Objective
from seq2see.training.options import LoadedModel, TrainOptions
from seq2see.training.prepare import RawSplits, prepare

SHAPE: dict[str, Any] = dict(d_model=8, heads=2, d_ff=8, encoder_layers=1, decoder_layers=1)
QUICK: dict[str, Any] = dict(steps=6, warmup=2, batch_tokens=128, evaluate_every=3, checkpoint_every=2, r_drop=0.0)
PAIRS = [(f"{n:02}", f"{n:02}"[::-1]) for n in range(60)]


def ensemble(members: int = 3, backward: int = 0, **settings: object) -> Ensemble:
    """An ensemble of random models."""
    made = network_of(small_model(**settings).config.but(members=members, backward=backward))
    assert isinstance(made, Ensemble)
    for number, member in enumerate(made.all):
        member.load_state_dict(small_model(number, **settings).state_dict())
    return made.eval()


def batch() -> Batch:
    sources = [[1, 5, 6, 2], [1, 7, 2], [1, 9, 9, 9, 9, 2]]
    return Batch.of(sources, [[1, 4, 2], [1, 5, 6, 7, 8, 2], [1, 3, 2]], (0, 0))


def test_probabilities_are_averaged() -> None:
    model, source, target = ensemble(), torch.tensor([[1, 4, 5, 2]]), torch.tensor([[1, 6, 3]])
    found = model(source, target).softmax(-1)
    each = torch.stack([member(source, target).softmax(-1) for member in model.all])
    assert torch.allclose(found, each.mean(0), atol=1e-6)
    assert torch.allclose(model(source, target), averaged([m(source, target) for m in model.all]), atol=1e-6)
    assert model.config.parameters == model.parameter_count() == 3 * small_model().parameter_count()
    assert member_of(model, 2) is model.all[2]
    assert member_of(model) is model.all[0]
    assert [m.config.parameters for m in model.all] == [m.parameter_count() for m in model.all]
    alone = small_model()
    assert member_of(alone, 0) is alone


def test_both_searches_follow_the_average() -> None:
    """Each token of an answer is the likeliest by the mean of the members, read again from the start."""
    model, special = ensemble(), Special(start=1, end=2, pad=0)
    sources = [[1, 4, 5, 2], [1, 7, 2], [1, 3, 8, 9, 10, 2]]
    with at_rest(model):
        short = PAPER.but(max_length=6)
        for ids, found in zip(sources, greedy(model, sources, special, short), strict=True):
            so_far = [special.start]
            for token in found.ids:
                logits = model(torch.tensor([ids]), torch.tensor([so_far]))[0, -1]
                assert token == int(logits.argmax())
                so_far.append(token)
        (best, *_), *_ = beam_search(model, sources[:1], special, short.but(beam=3))
        lead = torch.tensor([[special.start, *best.ids[:-1]]])
        values = model(torch.tensor(sources[:1]), lead)[0].log_softmax(-1)
        right = [float(values[place, token]) for place, token in enumerate(best.ids)]
        assert best.log_probabilities == pytest.approx(right, abs=1e-5)


def test_members_learn_each_by_its_own_loss() -> None:
    """A step of an ensemble changes each member as a step of that member alone does, its clipping too."""
    settings = TrainingConfig.of(label_smoothing=0.1, clip=0.01, epsilon=0.1)
    together, alone = ensemble(dropout=0.0), ensemble(dropout=0.0)
    learner = Learner(together, settings, 0)
    loss = learner.learn([batch()], 0.01)
    losses = []
    for number, member in enumerate(alone.all):
        losses.append(float(Learner(member, settings, 0).learn([batch()], 0.01)))
        for (name, a), b in zip(member.named_parameters(), together.all[number].parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6), name
    assert float(loss) == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_members_of_the_other_direction_learn_from_turned_batches() -> None:
    """A step changes them as a step on texts that were turned before they became a batch."""
    settings = TrainingConfig.of(epsilon=0.1, r_drop=1.0, layout="packed", batch_tokens=128)
    sources = [[1, 5, 6, 2], [1, 7, 2], [1, 9, 3, 8, 4, 2]]
    targets = [[1, 4, 2], [1, 5, 6, 7, 8, 2], [1, 3, 9, 2]]
    for kind in (Batches, PackedBatches):
        both, alone = ensemble(3, 2, dropout=0.0), ensemble(dropout=0.0)
        together = [Ragged.of(rows) for rows in (sources, targets)]
        Learner(both, settings, 0).learn([kind(*together, (0, 0), 128, seed=0).at(0)], 0.01)
        for number, member in enumerate(alone.all):
            sides = [Ragged.of([turned(row) if number else row for row in rows]) for rows in (sources, targets)]
            Learner(member, settings, 0).learn([kind(*sides, (0, 0), 128, seed=0).at(0)], 0.01)
            for (name, a), b in zip(member.named_parameters(), both.all[number].parameters(), strict=True):
                assert torch.allclose(a, b, atol=1e-6), (number, name)


def test_an_ensemble_of_both_directions_has_the_probabilities_of_one() -> None:
    model, source, target = ensemble(3, 1), torch.tensor([[1, 4, 5, 2]]), torch.tensor([[1, 6, 3]])
    assert [reads_backward(member) for member in model.all] == [False, False, True]
    assert torch.equal(model(source, target), averaged([m(source, target) for m in model.all[:2]]))
    assert model.behind is model.all[2]
    assert ensemble().behind is None
    two = ensemble(5, 2)
    assert isinstance(two.behind, Ensemble)
    assert reads_backward(two.behind)
    assert two.behind.all == two.all[3:]
    assert two.behind.config.parameters == two.behind.parameter_count()
    with pytest.raises(ConfigError, match=r"model\.backward is 3, but of 3 members at least one must read from left"):
        ensemble(3, 3)


def test_log_probabilities_of_the_other_direction_are_in_the_order_of_the_text() -> None:
    model, special = ensemble(3, 2), Special(1, 2, 0)
    assert model.behind is not None
    sources, targets = [[1, 4, 5, 6, 2], [1, 7, 2]], [[1, 8, 9, 10, 2], [1, 11, 2]]
    found = log_probabilities(model.behind, sources, targets, special)
    for source, target, values in zip(sources, targets, found, strict=True):
        logits = model.behind(torch.tensor([turned(source)]), torch.tensor([turned(target)[:-1]]))[0]
        each = logits.log_softmax(-1).gather(-1, torch.tensor(turned(target)[1:])[:, None])[:, 0].tolist()
        assert values == pytest.approx([*each[:-1][::-1], each[-1]], abs=1e-5)


@pytest.mark.parametrize("backward", [1, 2])
def test_both_directions_propose_answers_and_judge_all_of_them(backward: int) -> None:
    rules = PAPER.but(length_offset=8, min_length=3)
    model, special = ensemble(3, backward), Special(1, 2, 0)
    for member in model.all:  # random models seldom end
        member.output.bias.data[2] += 2.5
    sources = [[1, 4, 5, 2], [1, 7, 2], [1, 3, 8, 9, 10, 2], [1, 10, 4, 4, 2]]
    behind, wide, new = model.behind, rules.but(beam=5), 0
    assert behind is not None
    there = TorchEngine(model, special).search(sources, wide, 5)
    back = TorchEngine(behind, special).search([turned(ids) for ids in sources], wide, 5)
    engine = engine_of(model, special)
    found = engine.search(sources, rules, 5)
    assert [best.ids for best, *_ in found] == engine.ids(sources, wide)
    assert engine.ids(sources, rules) == engine.ids(sources, rules.but(beam=PROPOSED))
    assert [best.ids for [best] in engine.search(sources, rules)] == engine.ids(sources, rules)
    for row, some in enumerate(found):
        ahead = {tuple(one.ids) for one in there[row] if one.finished}
        proposed = ahead | {tuple(turned([1, *one.ids])[1:]) for one in back[row] if one.finished}
        scores = {}
        for ids in proposed:
            mine, theirs = (
                log_probabilities(network, [sources[row]], [[1, *ids]], special)[0] for network in (model, behind)
            )
            scores[ids] = (sum(mine) + sum(theirs)) / 2 / rules.divisor(len(ids)), mine
        ranked = sorted(proposed, key=lambda ids: -scores[ids][0])
        assert [tuple(one.ids) for one in some] == ranked[:5]
        assert [one.score for one in some] == pytest.approx([scores[ids][0] for ids in ranked[:5]], abs=1e-5)
        assert some[0].log_probabilities == pytest.approx(scores[ranked[0]][1], abs=1e-5)
        new += len({*ranked[:5]} - ahead)
    assert new  # some of the best were proposed from right to left only
    alone = engine_of(model.all[2], special)
    for row, [best] in enumerate(alone.search(sources, rules)):
        [raw] = TorchEngine(model.all[2], special).search([turned(sources[row])], rules)[0]
        inner = len(raw.ids) - raw.finished
        assert best.ids == raw.ids[:inner][::-1] + raw.ids[inner:]
        values = raw.log_probabilities
        assert best.log_probabilities == pytest.approx(values[:inner][::-1] + values[inner:], abs=1e-5)
        assert alone.ids([sources[row]], rules) == [best.ids]


def test_allowed_answers_are_judged_by_both_directions() -> None:
    made = seq2see.fit(PAIRS, ensemble=2, model=SHAPE, training=QUICK, progress=False)
    answers = made.answers(["12", "34"], only=["21", "43", "99"], n_best=3)
    assert all({one.output, *(other.output for other in one.alternatives)} == {"21", "43", "99"} for one in answers)
    network = made.transformer
    assert isinstance(network, Ensemble)
    assert network.behind is not None
    special = Special.of(made.tokenizers)
    read, told = made.tokenizers.source.encode("12"), made.tokenizers.target.encode
    score = {
        text: sum(sum(log_probabilities(one, [read], [told(text)], special)[0]) for one in (network, network.behind))
        for text in ("21", "43", "99")
    }
    assert answers[0].output == max(score, key=lambda text: score[text])


def test_a_teacher_adds_its_probabilities() -> None:
    """With all weight on the teacher, a pupil that is the teacher has no gradient to speak of."""
    teacher, pupil = small_model(dropout=0.0), small_model(dropout=0.0)
    settings = TrainingConfig.of(taught=1.0, label_smoothing=0.0)
    objective, one = Objective(pupil, settings, 0), batch()
    with torch.no_grad():
        taught = teacher(one.source, one.target_in, one.source_mask).flatten(0, 1).log_softmax(-1)
    loss = objective(one, None, torch.tensor(1.0), taught)
    loss.backward()
    assert max(float(p.grad.abs().max()) for p in pupil.parameters() if p.grad is not None) < 1e-4
    mask = Mask(keys=one.source != 0)
    logits = pupil(one.source, one.target_in, mask).flatten(0, 1)
    real = (one.target_out.flatten() != 0)[:, None]
    expected = -(taught.exp() * logits.log_softmax(-1) * real).sum().detach()
    assert float(loss.detach()) == pytest.approx(float(expected), 1e-4)
    half = Objective(pupil, settings.but(taught=0.25), 0)
    plain = Objective(pupil, settings, 0)(one, None, torch.tensor(1.0))
    mixed = half(one, None, torch.tensor(1.0), taught)
    assert float(mixed.detach()) == pytest.approx(float((0.75 * plain + 0.25 * loss).detach()), 1e-4)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_teacher_reads_a_batch_once(layout: str) -> None:
    """With R-Drop the pupil reads a batch twice, and the teacher's answers, which have no dropout, count for both."""
    rows = Ragged.of([[1, 4, 5, 2], [1, 6, 7, 8, 2], [1, 3, 2]])
    batches = (Batches if layout == "padded" else PackedBatches)(rows, rows, (0, 0), 128, seed=0)
    teacher, read = small_model(dropout=0.0), []
    teacher.encoder.register_forward_hook(lambda _, given, found: read.append(given[0].numel()))
    losses = []
    for r_drop in (0.0, 1.0):
        pupil = small_model(dropout=0.0)
        settings = TrainingConfig.of(taught=0.7, r_drop=r_drop, layout=layout, batch_tokens=128)
        losses.append(float(Learner(pupil, settings, 0, teacher).learn([batches.at(0)], 0.0)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(read) == 2
    assert read[0] == read[1]


def test_fit_trains_an_ensemble_that_lives_in_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "several"
    made = seq2see.fit(PAIRS, ensemble=3, model=SHAPE, training=QUICK, out=out)
    again = seq2see.load(out)
    assert again.config.model.members == made.config.model.members == 3
    assert isinstance(again.transformer, Ensemble)
    first, second, _ = again.transformer.all
    assert not torch.equal(first.encoder.embedding.table.weight, second.encoder.embedding.table.weight)
    texts = [source for source, _ in PAIRS[:9]]
    assert [one.output for one in again.answers(texts)] == [one.output for one in made.answers(texts)]
    looked = [again.trace("12", target="21", member=number)["logits"] for number in range(2)]
    assert looked[0].shape[-1] == again.config.model.target_vocabulary
    assert not torch.equal(looked[0], looked[1])
    with pytest.raises(UserError, match="`member` is 3, but the ensemble has members 0 to 2"):
        again.trace("12", member=3)
    with pytest.raises(UserError, match=r"Member 2 reads and writes from right to left: .* the members 0 to 1"):
        again.trace("12", member=2)
    assert again.evaluate(PAIRS[:5]).pairs == 5
    for form in ("ctranslate2", "hf", "onnx", "web"):  # before a package is asked for, which may be missing
        done = CliRunner().invoke(app, ["export", "--model", str(out), "--to", form])
        assert "an ensemble of 3" in str(done.exception)


def test_an_ensemble_resumes_to_the_same_weights(tmp_path: Path) -> None:
    settings: dict[str, Any] = dict(ensemble=2, model=SHAPE, training=QUICK)
    whole = seq2see.fit(PAIRS, **settings)

    def stop(step: Any) -> None:
        if step.step == 4:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        seq2see.fit(PAIRS, out=tmp_path / "a", on_step=stop, **settings)
    resumed = seq2see.fit(PAIRS, out=tmp_path / "a", resume=True, **settings)
    for a, b in zip(whole.transformer.parameters(), resumed.transformer.parameters(), strict=True):
        assert torch.equal(a, b)


def test_one_model_is_taught_by_an_ensemble(tmp_path: Path) -> None:
    out = tmp_path / "one"
    one = seq2see.fit(PAIRS, ensemble=2, distil=True, model=SHAPE | {"backward": 1}, training=QUICK, out=out)
    teacher = seq2see.load(tmp_path / "one-ensemble").config.model
    assert (one.config.model.members, one.config.model.backward) == (1, 0)
    assert (teacher.members, teacher.backward) == (2, 1)
    with pytest.raises(UserError, match="`distil` trains one model on an ensemble, but `ensemble` is 1"):
        seq2see.fit(PAIRS, distil=True)
    more = seq2see.fit(PAIRS, teacher=out, unlabelled=["77", "88", "99", "é"], model=SHAPE, training=QUICK)
    assert "3 that the teacher answered" in more.card  # nothing new can be made up of two digits but these
    assert more.tokenizers.source.vocabulary() == one.tokenizers.source.vocabulary()
    with pytest.raises(UserError, match="`unlabelled` are sources that a teacher answers"):
        seq2see.fit(PAIRS, unlabelled=["77"])
    with pytest.raises(UserError, match=r"model\.backward is 1, but what a teacher teaches reads and writes from left"):
        seq2see.fit(PAIRS, teacher=out, ensemble=2, model={"backward": 1})
    with pytest.raises(UserError, match="`tokenizer` is 'bytes', but `teacher` has a tokenizer"):
        seq2see.fit(PAIRS, teacher=out, tokenizer="bytes")


def test_unlabelled_sources_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file is read; unknown sources are counted, and those of the test are told or left out."""
    train, held = PAIRS[:50], PAIRS[50:]
    teacher = seq2see.fit(train, held[:5], held[5:], model=SHAPE, training=QUICK)
    given: dict[str, Any] = dict(teacher=teacher, model=SHAPE, training=QUICK)
    (tmp_path / "more.txt").write_text("77\n 88 \n\né\n58\n59\n", encoding="utf-8")
    taught = seq2see.fit(train, held[:5], held[5:], unlabelled=tmp_path / "more.txt", **given)
    assert "1 of 5 unlabelled sources with tokens that the teacher does not know, such as 'é': left out." in caplog.text
    assert "2 test pairs (40.0%) with a training source" in taught.card
    assert "| exact match on the 3 pairs whose source is not in the training |" in taught.card
    apart = seq2see.fit(train, held[:5], held[5:], unlabelled=str(tmp_path / "more.txt"), unseen=True, **given)
    assert "2 unlabelled sources of validation and test: left out." in caplog.text
    assert "no validation or test source is in the training |" in apart.card
    # the teacher may have seen them
    assert "| measured on test pairs whose sources are not in this training | |" in apart.card
    (tmp_path / "more.txt").write_text("\n")
    with pytest.raises(UserError, match=r"more\.txt is empty: sources were expected, one per line"):
        seq2see.fit(train, unlabelled=tmp_path / "more.txt", **given)
    with pytest.raises(UserError, match="`ensemble` is 0: the number of models was expected"):
        seq2see.fit(train, ensemble=0)


@pytest.mark.parametrize("engine", ["int8", "ctranslate2"])
def test_only_torch_answers_by_an_ensemble(tmp_path: Path, engine: str) -> None:
    several_models().save(tmp_path / "several")
    with pytest.raises(UserError, match=f"`engine` is {engine}, but several is an ensemble of . models, which only"):
        seq2see.load(tmp_path / "several", engine=engine)


def test_pairs_of_the_data_do_not_drown_in_a_teachers_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = SimpleNamespace(ids=lambda sources, rules: sources)  # it has learned to copy
    monkeypatch.setattr("seq2see.training.prepare.engine_of", lambda network, special: copies)
    pairs = [(text := f"{n * 7919 % 2**13:013b}", text) for n in range(100)]
    teacher = seq2see.fit(pairs, model=SHAPE, training=QUICK | {"steps": 1}, out=tmp_path / "teacher")
    request = TrainOptions(teacher=LoadedModel.read(tmp_path / "teacher"), device="cpu")
    monkeypatch.setattr("seq2see.training.prepare.MADE_ON_A_CPU", (700, 256))
    shown: list[str] = []
    ready = prepare(RawSplits.read(pairs), request, shown.append)
    assert shown == [
        "Inventing 700 sources …",
        *(f"The teacher has answered {count} of 700 sources …" for count in (0, 256, 512)),
    ]
    assert ready.taught == 700
    own, times = len(ready.labelled), (len(ready.train) - ready.taught) // len(ready.labelled)
    assert own < len(pairs)
    assert times == ready.taught // own > 1
    assert ready.train[: own * times] == ready.labelled * times
    assert ready.different == own + ready.taught < len(ready.train)  # what the card counts
    assert f"{own} for training and {ready.taught} that the teacher answered" in ready.counts
    cut = teacher.tokenizers.source.encode_batch([source for source, _ in ready.train])
    assert ready.ids[0].values.tolist() == [token for row in cut for token in row]
    alone = prepare(RawSplits.read(pairs), TrainOptions(device="cpu")).config.training
    assert (ready.config.training.budget, alone.budget) == (1800.0, 900.0)


def test_the_command_trains_an_ensemble_and_tells_of_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    Path("more.txt").write_text("77\n88\n")
    sizes = [word for key, value in SHAPE.items() for word in ("--set", f"model.{key}={value}")]
    options = [
        *sizes,
        "--steps",
        "2",
        "--set",
        "training.batch_tokens=128",
        "--set",
        "training.evaluate_every=2",
        "--set",
        "decoding.min_length=1",
    ]
    run = CliRunner().invoke
    options += ["--ensemble", "2", "--distil", "--unlabelled", "more.txt", "--out", "m"]
    done = run(app, ["train", "mine.tsv", *options])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "Members on the held-out pairs: " in done.output
    assert "; the last from right to left)." in done.output.replace("\n", " ")
    assert "One model learns from the ensemble in m-ensemble." in done.output
    assert "2 that the teacher answered" in Path("m/card.md").read_text()
    described = Path("m-ensemble/card.md").read_text().splitlines()[2]
    assert described.startswith("An ensemble of 2 Transformers made by seq2see, of one shape, the last of which")
    answered = run(app, ["predict", "--model", "m-ensemble", "12"])
    assert answered.exit_code == 0
    assert answered.stdout == f"{seq2see.load('m-ensemble').predict(['12'])[0]}\n"
    scored = run(app, ["evaluate", "mine.tsv", "--model", "m-ensemble", "--json"])
    assert json.loads(scored.stdout)["pairs"] == len(PAIRS)
    assert "--distil trains one model" in str(run(app, ["train", "mine.tsv", "--distil"]).exception)


def test_the_command_traces_a_chosen_member_and_tells_what_all_answer(tmp_path: Path) -> None:
    model, folder, run = several_models(), str(tmp_path / "several"), CliRunner().invoke
    model.save(folder)
    asked = ["trace", "bcd", "--model", folder, "--member", "1"]
    done = run(app, [*asked, "--name", "logits", "--format", "json"])
    alone, together = model.trace("bcd", member=1), model.predict(["bcd"])[0]
    told = json.loads(done.stdout)
    assert told["output"] == alone.output != together
    assert torch.allclose(torch.tensor(told["values"]["logits"]["values"]), alone["logits"], atol=1e-4)
    assert done.stderr == f"seq2see: This is member 1 of 3. Together they answer: {together}\n"
    muted = run(app, [*asked, "--mute", "0.1", "--attention", "cross"]).stdout
    assert f"without muting: {alone.output}" in " ".join(muted.split())
    assert "right to left" in str(run(app, [*asked[:-1], "2"]).exception)
    done = run(app, ["trace", "1845-01-05", "--member", "1"])
    assert "--member is 1, but this model is no ensemble" in str(done.exception)
    assert run(app, ["trace", "1845-01-05", "--name", "encoder.memory"]).stderr == ""


def saved_in(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.findall(r'id="saved">(.*)</script>', file.read_text(encoding="utf-8"))[0])
    return found


def test_a_page_file_is_said_to_hold_one_member(tmp_path: Path) -> None:
    folder, file = str(tmp_path / "several"), tmp_path / "page.html"
    model = several_models()
    model.save(folder)
    asked = ["see", "bcd", "--model", folder, "--html", str(file)]
    for number, options in ((0, []), (1, ["--member", "1"])):
        done = CliRunner().invoke(app, [*asked, *options])
        assert f"It shows member {number} of 3: the ensemble may answer otherwise." in " ".join(done.output.split())
        held = saved_in(file)
        assert held["model"]["ensemble"] == {"member": number, "members": 3, "traceable": 2}
        assert held["trace"]["output"] == model.trace("bcd", member=number).output
    assert "right to left" in str(CliRunner().invoke(app, [*asked, "--member", "2"]).exception)
    searching = model.config.decoding.but(min_length=1)  # the page does not know it
    frozen = Seq2Seq(replace(model.config, decoding=searching), model.tokenizers, model.transformer)
    frozen.save(tmp_path / "frozen")
    done = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "frozen"), *asked[4:]])
    assert "it shows this answer alone, because" in " ".join(done.output.split())
    assert "It shows member 0 of 3" in " ".join(done.output.split())
    assert saved_in(file)["model"]["ensemble"]["output"] == frozen.predict(["bcd"])[0]


def test_fit_keeps_its_history_and_what_the_search_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    made = seq2see.fit(PAIRS, model=SHAPE, training=QUICK, decoding={"beam": 3}, seed=7)
    assert [line["step"] for line in made.history] == [3, 6]
    assert made.config.decoding.beam == 3
    assert made.config.training.seed == 7
    assert "step 6 of 6: validation loss" in capsys.readouterr().err
    same, other = (seq2see.fit(PAIRS, model=SHAPE, training=QUICK, seed=seed, progress=False) for seed in (7, 8))
    assert same.card.splitlines()[-3:] == other.card.splitlines()[-3:]  # the split is the same
    assert not torch.equal(*(m.transformer.encoder.embedding.table.weight for m in (same, other)))
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match=r"no setting decoding\.bem\."):
        seq2see.fit(PAIRS, decoding={"bem": 3})


def test_evaluate_takes_what_fit_takes(tmp_path: Path) -> None:
    made, path = seq2see.fit(PAIRS, model=SHAPE, training=QUICK, progress=False), tmp_path / "a.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:7]))
    table = {"id": list(range(7)), "in": [a for a, _ in PAIRS[:7]], "out": [b for _, b in PAIRS[:7]]}
    expected = made.evaluate(PAIRS[:7]).given
    assert made.evaluate(path).given == made.evaluate(table, columns=("in", "out")).given == expected
