"""Is the fast GPU path right? Packed, compiled and captured training on a GPU beside the plain CPU path, step by step.

    python benchmarks/gpu_check.py            prints one JSON object a line; exits with 1 where they part

Same start, same batches, no dropout: the losses of ten steps (three of them before the graph is captured) must
agree, in float32 closely and in bfloat16 roughly. CI has no GPU, so this is run by hand on one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from seq2see.config import ModelConfig, TrainingConfig
from seq2see.data.batching import Ragged
from seq2see.data.dates import splits
from seq2see.data.packing import PackedBatches
from seq2see.model.transformer import Transformer
from seq2see.text.tokenizer import Tokenizer
from seq2see.training.learner import Learner


def losses(device: str, precision: str, steps: int = 10) -> list[float]:
    """Train a small model on packed dates and return the loss of each step."""
    tokenizer = Tokenizer.characters()
    pairs, _, _ = splits(2000, 1, 1, seed=1)
    source = Ragged.of(tokenizer.encode_batch([source for source, _ in pairs]))
    target = Ragged.of(tokenizer.encode_batch([target for _, target in pairs]))
    batches = PackedBatches(source, target, (67, 67), 2048, seed=1)
    torch.manual_seed(0)
    config = ModelConfig.of(
        source_vocabulary=68, target_vocabulary=68, d_model=64, heads=4, d_ff=128, encoder_layers=2, decoder_layers=2,
        dropout=0.0,
    )  # fmt: skip
    model = Transformer(config).to(device)
    learner = Learner(
        model, TrainingConfig.of(layout="packed", precision=precision, batch_tokens=2048), pad=67
    )
    return [float(learner.learn([batches.at(step)], 0.003)) for step in range(steps)]


def main() -> None:
    """Compare and say so."""
    reference = losses("cpu", "float32")
    good = True
    for precision, tolerance in (("float32", 1e-3), ("bfloat16", 3e-2)):
        found = losses("cuda", precision)
        worst = max(abs(a - b) / b for a, b in zip(found, reference, strict=True))
        good &= worst < tolerance
        print(json.dumps({"check": f"gpu training, {precision}", "largest relative difference of a loss": worst,
                          "tolerance": tolerance, "losses": found, "reference": reference}), flush=True)  # fmt: skip
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
