"""Base-size decoding on one GPU: seq2see's graphs beside Hugging Face Marian's generate.

    python benchmarks/gpu_decoding.py [--imported] [--store]            prints one JSON object a line

Random weights shared by both, sources of 24 tokens, 40 output tokens forced (the end token is forbidden). The two
take turns in one process; medians are compared. Checked: greedy tokens agree where the weights are the same.
Status 1: a figure has fallen by a fifth against gpu_figures.json. With --written-choice PyTorch's operations choose the
tokens, not our kernels, and nothing is compared: what the kernels bring is the difference. With --imported the model is
Marian's own, of the shape of OPUS-MT, imported by seq2see: both have the same weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from benchmarks import figures
from seq2see.config import ModelConfig
from seq2see.decoding.graphs import GraphDecoder, GraphSearch
from seq2see.decoding.hypothesis import PAPER, Special
from seq2see.decoding.search import greedy
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer

VOCABULARY, SOURCE, OUTPUT = 37_000, 24, 40
BANDWIDTH = 4.3e12  # bytes/s, device-to-device copy measured on the H200


def limit_seconds(rows: int) -> float:
    """Return the least time of a step: weights, caches (half full) and logits once through memory, in bf16."""
    d, f, layers = 512, 2048, 6
    weights = 2 * (6 * layers * d * d + 2 * layers * d * f + d * VOCABULARY)
    caches = 2 * rows * layers * 2 * d * (OUTPUT / 2 + SOURCE)
    return float(weights + caches + 2 * rows * VOCABULARY) / BANDWIDTH


def models() -> tuple[Transformer, object | None]:
    """Return our model and, where transformers is installed, Marian of the same size, both bf16 on the GPU."""
    torch.manual_seed(0)
    config = ModelConfig.of(source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, max_length=256)
    ours = network_of(config).cuda().eval()
    with torch.no_grad():
        ours.decoder.embedding.table.weight[2].zero_()
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError:
        return ours, None
    theirs = MarianMTModel(MarianConfig(
        vocab_size=VOCABULARY, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="relu",
        max_position_embeddings=256, pad_token_id=0, eos_token_id=2, decoder_start_token_id=1, scale_embedding=True,
    ))  # fmt: skip
    return ours, theirs.cuda().bfloat16().eval()


def imported() -> tuple[Transformer, object]:
    """Return a Marian model of OPUS-MT's shape as seq2see imports it, and itself, in bf16 on the GPU."""
    from transformers import MarianConfig, MarianMTModel

    from seq2see.interchange.huggingface import model_of

    torch.manual_seed(0)
    theirs = MarianMTModel(MarianConfig(
        vocab_size=VOCABULARY, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
        max_position_embeddings=512, pad_token_id=0, eos_token_id=2, decoder_start_token_id=1, scale_embedding=True,
    ))  # fmt: skip
    with torch.no_grad():
        theirs.final_logits_bias[0, 2] = -1e4  # the end token never comes
    with tempfile.TemporaryDirectory() as place:
        theirs.save_pretrained(place)
        ours, _ = model_of(Path(place))
    return ours.cuda().eval(), theirs.cuda().bfloat16().eval()


def timed(run: Callable[[], object]) -> float:
    """Return the seconds that a call takes, the device's work included."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def main() -> None:
    """Compare greedy and beam search at several batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--imported", action="store_true")
    parser.add_argument("--written-choice", action="store_true")
    figures.options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", default="1x1,512x1,256x4", help="batch x beam")
    options = parser.parse_args()
    report = figures.Report(figures.gpu(), options.store)
    if options.written_choice:
        GraphSearch._can_choose = lambda self: False
    counts = not (options.imported or options.written_choice)
    offset = OUTPUT - SOURCE  # forces 40 tokens: the end never comes, the limit does
    special = Special(start=1, end=2, pad=0)
    ours, theirs = imported() if options.imported else models()
    small = [torch.randint(3, VOCABULARY, (SOURCE,)).tolist() for _ in range(8)]
    plain = greedy(ours, small, special)
    graph = [h[0] for h in GraphDecoder(ours, special).search(small)]
    same = [h.ids for h in graph] == [h.ids for h in plain]
    figures.show({"float32 tokens equal to the plain search": same, "lengths": sorted({len(h.ids) for h in graph})})
    decoder = GraphDecoder(ours, special, torch.bfloat16)
    for line in options.lines.split(","):
        batch, beam = map(int, line.split("x"))
        sources = [torch.randint(3, VOCABULARY, (SOURCE,)).tolist() for _ in range(batch)]
        ids = torch.tensor(sources, device="cuda")
        started = time.perf_counter()
        decoder.ids(sources, PAPER.but(beam=beam, length_offset=offset))
        first = time.perf_counter() - started

        def search(sources: list[list[int]] = sources, beam: int = beam) -> None:
            decoder.ids(sources, PAPER.but(beam=beam, length_offset=offset))

        def generate(ids: torch.Tensor = ids, beam: int = beam) -> None:
            theirs.generate(  # type: ignore[attr-defined]
                input_ids=ids, num_beams=beam, do_sample=False, min_new_tokens=OUTPUT, max_new_tokens=OUTPUT,
                length_penalty=0.6, early_stopping=False,
            )  # fmt: skip

        search()
        seconds: dict[str, list[float]] = {"seq2see": [], "generate": []}
        if theirs is not None:
            generate()
        for _ in range(options.rounds):
            seconds["seq2see"].append(timed(search))
            if theirs is not None:
                seconds["generate"].append(timed(generate))
        last = [*decoder.searches.values()][-1]
        begin = timed(last.begin)

        def steps(last: GraphSearch = last) -> None:
            for _ in range(OUTPUT // last.together):
                last.steps()

        step = timed(steps) / OUTPUT
        median = {name: statistics.median(values) for name, values in seconds.items() if values}
        tokens = batch * OUTPUT
        name = f"decoding {batch} x {beam}, output tokens/s"
        report.add({
            "benchmark": f"gpu-decoding batch {batch} beam {beam}",
            "imported": options.imported, "written choice": options.written_choice,
            "output tokens/s": {name: tokens / value for name, value in median.items()},
            "spread": {name: (max(values) - min(values)) / median[name] for name, values in seconds.items() if values},
            "ratio": median.get("generate", float("nan")) / median["seq2see"],
            "seconds": seconds, "first call, seconds": first, "device step, µs": step * 1e6,
            "reading the source, ms": begin * 1e3,
            "percent of limit": 100 * limit_seconds(batch * beam) * OUTPUT / median["seq2see"],
        }, **({"speed": (name, tokens / median["seq2see"], "more")} if counts else {}))  # fmt: skip
    report.end()


if __name__ == "__main__":
    main()
