"""Trains the model ``examples`` on the world of rules: ``python -m shipped.examples.train --seconds N --out DIR``.

``--seconds`` counts from the start of the command to its end: starting, compiling and scoring included. The rate rises,
stays, and falls in the last part. Each line of ``curve.jsonl`` tells the loss and the share of held-out made tasks that
would be answered wholly right. ``--resume`` takes over the weights of another folder with a short warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see.config import ModelConfig, TrainingConfig
from seq2see.data.batching import Batch, PackedBatch
from seq2see.kernels.registry import network_of
from seq2see.kernels.shared import PackedMasks
from seq2see.model.transformer import Transformer, at_rest
from seq2see.training.learner import Learner, memory_and_logits
from shipped.examples.answers import load, read_tasks, save, scores, shape_of
from shipped.examples.rules import NAMES
from shipped.examples.stream import Packer, Stream, held_out, padded, rows_of
from shipped.examples.world import PAD

PEAK = 989e12  # bf16 operations a second of the card, by its data sheet
BESIDE = 20  # seconds kept for the weights
BETWEEN = 120  # seconds between two writings of the weights, in case the command is stopped


class Examined:
    """Held-out made tasks, and how many of them a network would answer wholly right."""

    def __init__(self, count: int, size: int, answers: int, device: torch.device, is_packed: bool) -> None:
        some = held_out(count, 0)
        #: batches, their masks, the family of each task, and the task of each answer token
        self.batches: list[tuple[Batch | PackedBatch, PackedMasks | None, Tensor, Tensor]] = []
        if not is_packed:
            for padded_one, families in padded(some, size):
                batch = padded_one.to(device)
                of_token = torch.arange(len(families), device=device).repeat_interleave(batch.target_out.shape[1])
                self.batches.append((batch, None, torch.tensor(families, device=device), of_token))
            return
        packer = Packer(iter(some), size, answers)
        while packer.width:
            numbers = torch.zeros(packer.width, dtype=torch.int64)
            try:
                _, tokens, families = packer.fill(numbers.numpy())
            except StopIteration:
                break
            laid = PackedBatch(numbers, size, tokens).to(device)
            self.batches.append((laid, laid.masks(), torch.tensor(families, device=device), laid.target_rows[4]))

    def of(self, model: Transformer) -> dict[str, Any]:
        """Return the loss a token, and the share solved of all and of each family, in per cent.

        With the right answer before it each token must be the likeliest: then the greedy answer is right.
        """
        device = next(model.parameters()).device
        solved, count = (torch.zeros(len(NAMES), device=device) for _ in range(2))
        loss, tokens = torch.zeros((), device=device), 0
        with at_rest(model), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for batch, masks, families, of_token in self.batches:
                _, logits = memory_and_logits(model, batch, masks)
                right = batch.target_out.flatten()
                loss += torch.nn.functional.cross_entropy(logits.float(), right, ignore_index=PAD, reduction="sum")
                wrong = ((logits.argmax(-1) != right) & (right != PAD)).float()
                wrongs = torch.zeros(len(families) + 1, device=device).index_add_(0, of_token, wrong)
                solved.index_add_(0, families, (wrongs[: len(families)] == 0).float())
                count.index_add_(0, families, torch.ones_like(families, dtype=torch.float32))
                tokens += batch.tokens
        each = (100 * solved / count.clamp(min=1)).tolist()
        return {
            "held_out_loss": round(float(loss) / tokens, 4),
            "solved": round(100 * float(solved.sum() / count.sum()), 2),
            "families": {name: round(value, 1) for name, value in zip(NAMES, each, strict=True)},
        }


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, required=True, help="seconds of the whole command")
    add("--out", type=Path, required=True, help="folder for weights, curve and scores")
    add("--positions", default="rotary", choices=("sinusoid", "rotary", "relative"))
    add("--width", type=int, default=384)
    add("--layers", default="6+2", help="layers of the encoder + of the decoder")
    add("--heads", type=int, default=0, help="width / 64 if not given")
    add("--wide", type=int, default=0, help="width of the feed-forward layer; 3.67 times the width if not given")
    add("--norm", default="pre", choices=("pre", "post"))
    add("--rate", type=float, default=1e-3, help="largest learning rate")
    add("--muon", type=float, default=7.5, help="0: Adam alone")
    add("--warm", type=int, default=300, help="steps of the warm-up")
    add("--fall", type=float, default=0.2, help="share of the training in which the rate falls; 0: it stays")
    add("--tokens", type=int, default=65536, help="source tokens of a step")
    add("--workers", type=int, default=14)
    add("--seed", type=int, default=1, help="of the stream of tasks: another one for each stretch")
    add("--resume", type=Path, help="folder of an earlier stretch")
    add("--keep", type=Path, help="file with the whole state, read if it is there: an exact resume on the same machine")
    add("--tasks", type=Path, help="folder with .jsonl files of tasks, scored at the end")
    add("--score-seconds", type=float, default=40, help="seconds kept for the scores")
    add("--every", type=float, default=15, help="seconds between lines of the curve")
    add("--held-out", type=int, default=2000)
    return parser.parse_args()


def main() -> None:
    """Train."""
    began, asked = time.monotonic(), arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.manual_seed(asked.seed)
    torch.set_float32_matmul_precision("high")
    kept = torch.load(asked.keep, weights_only=True) if asked.keep and asked.keep.is_file() else None
    before: dict[str, Any] = {"tasks": 0, "steps": 0, "trained_seconds": 0.0, "seeds": []}
    if kept is not None:
        model, before = network_of(ModelConfig.of(**kept["model"])), kept["about"]
        model.load_state_dict(kept["weights"], strict=False)  # one name for shared ones
    elif asked.resume:
        model, before = load(asked.resume)
    else:
        layers = [int(number) for number in asked.layers.split("+")]
        wide = asked.wide or asked.width * 11 // 3 // 64 * 64
        heads = asked.heads or max(1, asked.width // 64)
        model = network_of(shape_of(asked.width, (layers[0], layers[1]), asked.positions, heads, wide, asked.norm))
    seed = asked.seed + 1000 * len(before["seeds"])  # no stretch sees the tasks of another
    answers_size = -(-asked.tokens * 9 // 100 // 128) * 128  # a batch has about 6 answer tokens to 100 of its sources
    stream = Stream(asked.workers, asked.tokens, answers_size, seed)  # the workers start while we compile
    model = model.to(device)
    config = model.config
    is_packed = on_gpu and config.positions != "relative"  # our kernel of packed batches has no biases
    settings = TrainingConfig(
        steps=10**6, budget=1e6, batch_tokens=asked.tokens, layout="packed" if is_packed else "padded",
        precision="bfloat16" if on_gpu else "float32", warmup=asked.warm, learning_rate=asked.rate, beta2=0.98,
        epsilon=1e-9, muon=asked.muon, clip=1.0, label_smoothing=0.0, seed=asked.seed,
    )  # fmt: skip
    learner = Learner(model, settings, PAD)
    if kept is not None:
        learner.restore(kept["state"])
    examined = Examined(asked.held_out, asked.tokens, answers_size, device, is_packed)
    curve = (asked.out / "curve.jsonl").open("w", encoding="utf-8")
    first = {
        "parameters": config.parameters, "positions": config.positions, "width": config.d_model,
        "layers": f"{config.encoder_layers}+{config.decoder_layers}",
        "heads": config.heads, "wide": config.d_ff, "tokens_of_a_step": asked.tokens, "device": str(device),
        "norm": config.norm, "rate": asked.rate, "muon": asked.muon, "torch": torch.__version__,
    }  # fmt: skip

    queue: deque[torch.cuda.Event] = deque()

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line, ensure_ascii=False), file=curve, flush=True)
        print(json.dumps(line, ensure_ascii=False), flush=True)

    def learn(rate: float) -> tuple[int, torch.Tensor]:
        batch, count = stream.next()
        if is_packed:
            loss = learner.learn([batch], rate)
        else:
            loss = learner.learn([one for one, _ in padded(rows_of(batch), asked.tokens // 4)], rate)
        if on_gpu:  # the host is at most a few steps ahead, so that the clock tells where the training is
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
            queue.append(done)
            if len(queue) > 4:
                queue.popleft().synchronize()
        return count, loss

    tell(first)
    step, drawn = 0, 0
    for _ in range(6 if on_gpu else 1):  # kernels are built and the step is captured; the clock starts afterwards
        count, loss = learn(asked.rate / (1 if kept is not None else asked.warm))
        step, drawn = step + 1, drawn + count
    if on_gpu:
        torch.cuda.synchronize()
    ready = time.monotonic()
    if ready - began > 0.5 * asked.seconds:
        tell({"late": f"starting and compiling took {ready - began:.0f} s of {asked.seconds:.0f}"})
    end = began + asked.seconds - (asked.score_seconds if asked.tasks else 0) - (BESIDE if on_gpu else 2)
    length = max(1.0, end - ready)
    tell({"ready_after": round(ready - began, 1), "trains_for": round(length, 1)})
    last_line, last_drawn, last_step, last_saved = ready, drawn, step, ready
    total, added = torch.zeros((), device=device), 0
    parameters = sum(p.numel() for p in model.parameters())

    def about() -> dict[str, Any]:
        trained = before["trained_seconds"] + time.monotonic() - ready
        return {
            "tasks": before["tasks"] + drawn, "steps": before["steps"] + step, "trained_seconds": round(trained, 1),
            "seeds": [*before["seeds"], seed], "rate": asked.rate, "muon": asked.muon,
        }  # fmt: skip

    while (now := time.monotonic()) < end:
        gone = (now - ready) / length
        rate = asked.rate * (1.0 if kept is not None else min(1.0, step / asked.warm))
        if asked.fall and gone > 1 - asked.fall:
            rate *= max(0.0, (1 - gone) / asked.fall)
        count, loss = learn(rate)
        step, drawn = step + 1, drawn + count
        total, added = total + loss.detach(), added + 1
        if now - last_line > asked.every:
            mean = float(total) / added  # waits for the GPU
            now = time.monotonic()
            speed = (step - last_step) / (now - last_line)
            # each weight of a product: 2 operations forward, 4 backward; of those that read the source and the answer
            source = _encoder_share(model)
            work = 6 * parameters * (source * asked.tokens + (1 - source) * answers_size) * speed
            line = {
                "seconds": round(now - ready, 1), "step": before["steps"] + step, "tasks": before["tasks"] + drawn,
                "loss": round(mean, 4), "rate": round(rate, 7),
                "tasks_a_second": round((drawn - last_drawn) / (now - last_line)),
                "tokens_a_second": round(speed * asked.tokens), "share_of_peak": round(work / PEAK, 3),
            }  # fmt: skip
            tell(line | examined.of(model))
            if time.monotonic() - last_saved > BETWEEN:
                save(asked.out, model, about())
                last_saved = time.monotonic()
            total, added = torch.zeros((), device=device), 0
            last_line, last_drawn, last_step = time.monotonic(), drawn, step
    stream.close()
    save(asked.out, model, about())
    if asked.keep:
        weights = {name: x.detach().cpu() for name, x in model.named_parameters()}
        whole = {"weights": weights, "state": {name: x.cpu() for name, x in learner.state().items()}}
        torch.save({**whole, "model": asdict(config), "about": about()}, asked.keep)
    final: dict[str, Any] = {"step": before["steps"] + step, "tasks": before["tasks"] + drawn}
    tell({"final": final | examined.of(model), "seconds": round(time.monotonic() - began, 1)})
    if asked.tasks:
        sets = read_tasks(asked.tasks)
        found: dict[str, Any] = {}
        for shown in (3, 5, 2, 1):
            if time.monotonic() - began > asked.seconds - 5:
                break
            found[f"{shown} examples"] = scores(model, sets, shown)
            tell({f"{shown} examples": found[f"{shown} examples"], "seconds": round(time.monotonic() - began, 1)})
            (asked.out / "scores.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    curve.close()
    sys.stdout.flush()


def _encoder_share(model: Transformer) -> float:
    encoder = sum(p.numel() for p in model.encoder.layers.parameters())
    return encoder / sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    main()
