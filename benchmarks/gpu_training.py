"""Base-size training on one GPU: seq2see, packed and compiled, beside Hugging Face Marian on padded buckets.

    python benchmarks/gpu_training.py [--store]            prints one JSON object a line

Random ids with sentence lengths like a news corpus (about 27 tokens a side). Real target tokens per second:
padding does not count. The two take turns in one process; medians of the rounds are compared. Status 1: a figure has
fallen by a fifth against gpu_figures.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from benchmarks import figures
from seq2see.config import PRESETS, ModelConfig, TrainingConfig
from seq2see.data.batching import Batches, PackedBatches, Ragged
from seq2see.kernels.registry import network_of
from seq2see.training import learner
from seq2see.training.learner import Learner

VOCABULARY = 37_000
PEAK = 790e12  # bf16 matrix product measured on the H200 (FLOP/s)


def corpus(pairs: int, seed: int = 0) -> tuple[Ragged, Ragged]:
    """Make pairs whose lengths are spread like sentences: mean 27, from 4 to 100, both sides alike."""
    random = np.random.default_rng(seed)
    source = np.clip(random.gamma(3.2, 27 / 3.2, pairs), 4, 100).astype(int)
    target = np.clip(source * random.normal(1, 0.15, pairs), 4, 100).astype(int)

    def side(lengths: np.ndarray) -> Ragged:
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(random.integers(3, VOCABULARY, offsets[-1]).astype(np.int32), offsets)

    return side(source), side(target)


def training_flops(config: ModelConfig, source: Ragged, target: Ragged) -> float:
    """Count the floating-point operations that one target token needs, forward and backward (PEERS: Limits)."""
    d, f, layers = config.d_model, config.d_ff, config.encoder_layers
    encoder, decoder, output = (layers * (4 * d * d + 2 * d * f), layers * (8 * d * d + 2 * d * f), d * VOCABULARY)
    s, t = source.lengths.astype(float), target.lengths.astype(float) - 1
    products = 6 * (encoder * s.sum() + (decoder + output) * t.sum())
    attention = 3 * 4 * d * layers * ((s * s).sum() + (t * t).sum() / 2 + (s * t).sum())
    return float(products + attention) / t.sum()


def ours(
    source: Ragged, target: Ragged, tokens: int, preset: str = "base"
) -> Callable[[int], tuple[int, torch.Tensor]]:
    """Return a function that trains for some steps, counts real target tokens and returns the last loss."""
    config = ModelConfig.of(source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, **PRESETS[preset].model)
    settings = TrainingConfig.of(layout="packed", precision="bfloat16", batch_tokens=tokens)
    torch.manual_seed(0)
    model = network_of(config).cuda()
    trained = Learner(model, settings, pad=0)
    batches = PackedBatches(source, target, (0, 0), tokens, seed=1)
    step = 0

    def run(steps: int) -> tuple[int, torch.Tensor]:
        nonlocal step
        count = 0
        for _ in range(steps):
            batch = batches.at(step)
            loss = trained.learn([batch], 1e-4)
            count += batch.tokens
            step += 1
        return count, loss.detach()

    return run


def marian(source: Ragged, target: Ragged, tokens: int, attention: str) -> Callable[[int], tuple[int, torch.Tensor]]:
    """The peer: the same sizes, bf16 autocast, fused Adam, buckets by length of at most ``tokens``."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, dropout=0.1, attention_dropout=0.0,
        activation_function="relu", max_position_embeddings=1024, pad_token_id=0, eos_token_id=2,
        decoder_start_token_id=1, scale_embedding=True, attn_implementation=attention,
    )  # fmt: skip
    model = MarianMTModel(config).cuda().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    batches = Batches(source, target, (0, 0), tokens, seed=1)
    device, step = torch.device("cuda"), 0

    def run(steps: int) -> tuple[int, torch.Tensor]:
        nonlocal step
        count = 0
        for _ in range(steps):
            batch = batches.at(step).to(device)
            keys = batch.source_mask.keys
            mask = torch.ones_like(batch.source, dtype=torch.bool) if keys is None else keys
            with torch.autocast("cuda", torch.bfloat16):
                output = model(input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.target_in)
                loss = torch.nn.functional.cross_entropy(
                    output.logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=0, label_smoothing=0.1
                )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            count += batch.tokens
            step += 1
        return count, loss.detach()

    return run


def timed(run: Callable[[int], tuple[int, torch.Tensor]], steps: int) -> float:
    """Return real target tokens per second over some steps."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    count, _ = run(steps)
    torch.cuda.synchronize()
    return count / (time.perf_counter() - started)


def main() -> None:
    """Run both in turns and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=24_576)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--preset", default="base", help="of which a step is measured; others than base are not stored")
    parser.add_argument("--uncompiled", action="store_true", help="captured as it is written, and nothing is compared")
    parser.add_argument("--alone", action="store_true", help="without the peer")
    figures.options(parser)
    options = parser.parse_args()
    report, counts = (figures.Report(figures.gpu(), options.store), options.preset == "base" and not options.uncompiled)
    source, target = corpus(100_000)
    flops = training_flops(ModelConfig(), source, target)
    if options.uncompiled:
        learner.SMALL = 10**9  # nothing is compiled; the kernels stay
    started = time.perf_counter()
    runs = {"seq2see": ours(source, target, options.tokens, options.preset)}
    runs["seq2see"](1)
    torch.cuda.synchronize()
    first = time.perf_counter() - started  # from the model to the end of the first step
    figures.show({"run": "seq2see", "preset": options.preset, "uncompiled": options.uncompiled,
                  "first step, seconds": first})  # fmt: skip
    try:
        if not options.alone:
            runs["marian-sdpa"] = marian(source, target, options.tokens, "sdpa")
    except ImportError:
        figures.show({"peer": "transformers", "left out": "not installed"})
    for run in runs.values():
        run(10)
        torch.cuda.synchronize()
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            speeds[name].append(timed(run, options.steps))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    losses = {name: float(run(1)[1]) for name, run in runs.items()}
    report.add({
        "benchmark": "gpu-training-base", "losses after the same number of steps": losses,
        "tokens a batch": options.tokens, "target tokens/s": medians, "all": speeds,
        "spread": {name: (max(values) - min(values)) / medians[name] for name, values in speeds.items()},
        "ratio": medians["seq2see"] / medians.get("marian-sdpa", float("nan")),
        "MFLOP a target token": flops / 1e6,
        "percent of limit": {name: 100 * value * flops / PEAK for name, value in medians.items()},
    }, **({"speed": ("training base, target tokens/s", medians["seq2see"], "more"),
           "first": ("training base, first step of a process, seconds", first, "less")} if counts else {}))  # fmt: skip
    if options.profile:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            runs["seq2see"](5)
            torch.cuda.synchronize()
        print(seen.key_averages().table(sort_by="self_device_time_total", row_limit=40, max_name_column_width=80))
    report.end()


if __name__ == "__main__":
    main()
