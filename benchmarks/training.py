"""CPU training: seconds until the dates are learned, ours beside the same model in ``torch.nn.Transformer``."""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.cpu import float_speed, products
from benchmarks.measure import Line, take_turns
from benchmarks.peers import PlainTransformer
from seq2see import machine
from seq2see.config import ModelConfig, TrainingConfig, preset
from seq2see.data.batching import Batch
from seq2see.data.recipe import fast_on
from seq2see.decoding.torch_engine import threads_of
from seq2see.kernels.registry import network_of
from seq2see.storage import folder
from seq2see.tasks.dates import splits
from seq2see.training.learner import Learner
from seq2see.training.loop import Trainer
from seq2see.training.schedule import learning_rate

GOAL = 0.999  # of the held-out dates must be answered letter by letter
BLOCK = 50  # steps that each takes before it is the other's turn
NEVER = 10**9


class PlainLearner:
    """A training loop as one writes it around ``torch.nn.Transformer``, from the same weights and with our recipe."""

    def __init__(self, trainer: Trainer) -> None:
        self.settings, self.pad = trainer.config.training, trainer.tokenizers.target.pad
        self.outside = copy.deepcopy(trainer.model)  # of which it uses the embeddings and the output projection
        self.plain = PlainTransformer(self.outside)
        used = (self.plain.network, self.outside.encoder.embedding, self.outside.decoder.embedding, self.outside.output)
        self.parameters = [parameter for module in used for parameter in module.parameters()]
        self.optimiser = torch.optim.Adam(
            self.parameters, betas=(self.settings.beta1, self.settings.beta2), eps=self.settings.epsilon
        )

    def learn(self, batch: Batch, rate: float) -> float:
        """Take one step and return its loss."""
        assert batch.source_mask.keys is None, "dates have one length"
        network, target = self.plain.network.train(), batch.target_in
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        x = network(
            self.outside.encoder.embedding(batch.source),
            self.outside.decoder.embedding(target),
            tgt_mask=mask,
            tgt_is_causal=True,
        )
        loss = F.cross_entropy(
            self.outside.output(x).flatten(0, 1),
            batch.target_out.flatten(),
            ignore_index=self.pad,
            label_smoothing=self.settings.label_smoothing,
        )
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimiser.step()
        return float(loss.detach())

    def exact_match(self, trainer: Trainer) -> float:
        """Answer the held-out dates with the plain loop."""
        tokens = trainer.tokenizers.target
        self.plain.network.eval()
        source = torch.tensor(trainer.tokenizers.source.encode_batch([a for a, _ in trainer.validation]))
        rows = self.plain.greedy(source, tokens.start, tokens.end, 20).tolist()
        cut = [row[: row.index(tokens.end)] if tokens.end in row else row for row in rows]
        return _share(tokens.decode_batch(cut), trainer)


def dates_training(
    rounds: int, goal: float = GOAL, block: int = BLOCK, steps: int | None = None, count: int = 100_000
) -> Line:
    """Train the model that ships, from scratch, twice side by side, until the held-out dates are answered.

    One training each, whatever ``rounds`` says: its blocks of steps are the rounds. Only they are timed, not the
    answering of the held-out dates after each. Both begin with the same weights and see the same batches; when
    rounding has driven them apart, how many steps each needs is luck, so that the ratio is of their steps.
    """
    path = folder.find("dates")
    config = folder.read_config(path)
    config = replace(config, training=without_looks(config.training))
    train, held_out, _ = splits(count, count // 100, 1, config.training.seed)
    trainer = Trainer(config, folder.read_tokenizers(path), train, held_out)
    plain = PlainLearner(trainer)
    most, width = steps or config.training.steps, config.model.d_model
    threads = torch.get_num_threads()

    ours = trainer.steps()
    numbers = itertools.count()

    def our_step() -> float:
        return float(next(ours).loss)

    def plain_step() -> float:
        number = next(numbers)
        batch = trainer.batches.at(number)
        assert isinstance(batch, Batch)
        return plain.learn(batch, learning_rate(number + 1, config.training, width))

    def our_score() -> float:
        sources = trainer.tokenizers.source.encode_batch([source for source, _ in held_out])
        trainer.model.eval()
        return _share(trainer.tokenizers.target.decode_batch(trainer.engine.ids(sources)), trainer)

    contestants = {
        "seq2see": _blocks(our_step, our_score, threads, goal, block, most),
        "nn.Transformer": _blocks(plain_step, lambda: plain.exact_match(trainer), threads, goal, block, most),
    }
    seconds: dict[str, list[float]] = {who: [] for who in contestants}  # of each block
    scores: dict[str, list[float]] = {who: [] for who in contestants}
    losses: dict[str, list[float]] = {who: [] for who in contestants}
    try:
        for turn in itertools.zip_longest(*contestants.values()):
            for who, done in zip(contestants, turn, strict=True):
                if done is not None:
                    for column, value in zip((seconds, scores, losses), done, strict=True):
                        column[who].append(value)
    finally:
        torch.set_num_threads(threads)
    first, flops = trainer.batches.at(0), float_speed()
    assert isinstance(first, Batch)
    forward = products(config.model, len(first.source), first.source.shape[1], first.target_in.shape[1])
    both = min(len(column) for column in seconds.values())
    apart = [abs(a - b) for a, b in zip(*(column[:both] for column in losses.values()), strict=True)]
    return Line(
        "dates-training",
        f"the dates model from scratch, blocks of {block} steps taken by turns, {threads} threads",
        "steps", block, {who: column[:both] for who, column in seconds.items()}, "2× of nn.Transformer",
        agree=f"their losses differ by {apart[0]:.1e} after {block} steps, by at most {max(apart):.1e} later",
        limit=3 * forward * block / flops,
        notes=[f"{who}: {scores[who][-1]:.1%} of {len(held_out):,} held-out dates after {block * len(column)} steps, "
               f"{sum(column):.0f} s{'' if scores[who][-1] >= goal else f': {goal:.1%} NOT REACHED'}"
               for who, column in seconds.items()],
        details={"goal": goal, "block_seconds": seconds, "exact_match": scores, "loss": losses,
                 "seconds_to_goal": {who: sum(column) for who, column in seconds.items()}},
    )  # fmt: skip


def small_training(rounds: int, sentences: int = 38, length: int = 27, vocabulary: int = 8000) -> Line:
    """Take steps of the preset for small data on random sentences of one length, with its dropout.

    Ours has the precision that a training on this CPU gets; its peer has float32 and, if ours is narrower, autocast.
    """
    chosen = preset("small")
    config = ModelConfig.of(**chosen.model, source_vocabulary=vocabulary, target_vocabulary=vocabulary)
    settings = TrainingConfig.of(**{**chosen.training, **fast_on("cpu", chosen.model)})
    torch.manual_seed(1)
    model = network_of(config)
    sources, targets = torch.randint(3, vocabulary, (2, sentences, length)).tolist()
    batch = Batch.of(sources, targets, (0, 0))
    ours, target = Learner(model, settings, 0), batch.target_in
    with warnings.catch_warnings():  # it says that it cannot leave out padding; there is none
        warnings.simplefilter("ignore")
        peer = nn.Transformer(
            config.d_model, config.heads, config.encoder_layers, config.decoder_layers, config.d_ff, config.dropout,
            batch_first=True, norm_first=True,
        )  # fmt: skip
    embedding = nn.Embedding(vocabulary, config.d_model)  # shared with the output, as in the preset
    parameters = [*peer.parameters(), *embedding.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=1e-4)
    mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])

    def peer_step(narrow: bool = False) -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            x = peer(embedding(batch.source), embedding(target), tgt_mask=mask, tgt_is_causal=True)
            logits = F.linear(x, embedding.weight).flatten(0, 1)
            loss = F.cross_entropy(logits, batch.target_out.flatten(), label_smoothing=settings.label_smoothing)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        return float(loss.detach())

    contestants: dict[str, Callable[[], float]] = {
        "seq2see": lambda: float(ours.learn([batch], 1e-4)),
        "nn.Transformer": peer_step,
    }
    if settings.precision == "bfloat16":
        contestants["nn.Transformer, autocast"] = lambda: peer_step(narrow=True)
    threads = min(torch.get_num_threads(), machine.free_cores())
    with threads_of(threads):
        seconds, flops = take_turns(contestants, rounds), float_speed()
    forward = products(config, sentences, batch.source.shape[1], target.shape[1])
    return Line(
        "small-training",
        f"a step of the preset small, {sentences} sentences of {length} tokens, {threads} threads each, ours in "
        f"{settings.precision}",
        "tokens", batch.tokens, seconds, "1.5× of nn.Transformer", limit=3 * forward / flops,
    )  # fmt: skip


def without_looks(settings: TrainingConfig) -> TrainingConfig:
    """Keep the recipe, but leave evaluation and checkpoints to the benchmark."""
    return settings.but(evaluate_every=NEVER, checkpoint_every=NEVER)


def _blocks(
    step: Callable[[], float], score: Callable[[], float], threads: int, goal: float, block: int, most: int
) -> Iterator[tuple[float, float, float]]:
    """Train in blocks: yield each one's seconds, the exact match after it, and its last loss, until the goal."""
    reached, taken = 0.0, 0
    while reached < goal and taken < most:
        torch.set_num_threads(threads)
        started = time.perf_counter()
        for _ in range(block):
            loss = step()
        seconds = time.perf_counter() - started
        taken, reached = taken + block, score()
        yield seconds, reached, loss


def _share(answers: list[str], trainer: Trainer) -> float:
    right = sum(given == wanted for given, (_, wanted) in zip(answers, trainer.validation, strict=True))
    return right / len(answers)


LINES: dict[str, Callable[[int], Line]] = {"dates-training": dates_training, "small-training": small_training}
