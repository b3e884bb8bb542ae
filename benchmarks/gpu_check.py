"""Is the fast GPU path right? Its training, its search and its kernels beside the plain ones.

    python benchmarks/gpu_check.py [kernels] [step] [choices] [search] [training] [again]

prints one JSON object a line and exits with 1 where they part.

Packed, compiled and captured training: same start, same batches, no dropout; the losses of ten steps (three of them
before the graph is captured) must agree, in float32 closely and in bfloat16 roughly. Search: tokens and log-probabilities
of the graphs must be those of the plain search on the CPU. Kernels: against the same equations written
out; Triton's interpreter runs them without a GPU too (`make verify`). CI has none, so the rest is run by hand.
"""

from __future__ import annotations

import copy
import gc
import itertools
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from benchmarks import figures
from seq2see import fit
from seq2see.config import ModelConfig, TrainingConfig
from seq2see.data.batching import Batches, PackedBatches, Ragged, spans_of
from seq2see.decoding.graphs import GraphDecoder, GraphSearch
from seq2see.decoding.hypothesis import PAPER, Special, with_beam
from seq2see.decoding.search import LOGITS_PART, _by_parts, beam_search, greedy
from seq2see.decoding.torch_engine import WORTH_A_LANE, TorchEngine
from seq2see.kernels import operators
from seq2see.kernels.ensemble import Ensemble
from seq2see.kernels.operators import span_attention
from seq2see.kernels.registry import network_of
from seq2see.kernels.shared import PackedMask
from seq2see.model.attention import written_attention
from seq2see.model.masks import Mask
from seq2see.tasks.dates import splits
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training.learner import Learner

#: The command, which compiles as it does for a long training.
COMPILED = "from seq2see.training import learner; learner.WORTH_COMPILING = 0; from seq2see.cli import main; main()"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def losses(device: str, precision: str, width: int, norm: str, steps: int = 10, muon: float = 0.0) -> list[float]:
    """Train a model on packed dates and return the loss of each step; on a GPU a wide one is compiled."""
    tokenizer = Tokenizer.characters()
    pairs, _, _ = splits(2000, 1, 1, seed=1)
    source = Ragged.of(tokenizer.encode_batch([source for source, _ in pairs]))
    target = Ragged.of(tokenizer.encode_batch([target for _, target in pairs]))
    batches = PackedBatches(source, target, (67, 67), 2048, seed=1)
    torch.manual_seed(0)
    config = ModelConfig.of(
        source_vocabulary=68, target_vocabulary=68, d_model=width, heads=4, d_ff=128, encoder_layers=2, decoder_layers=2,
        dropout=0.0, norm=norm,
    )  # fmt: skip
    model = network_of(config).to(device)
    settings = TrainingConfig.of(
        layout="packed", precision=precision, batch_tokens=2048, muon=muon, steps=10**9
    )  # long enough to be compiled
    learner = Learner(model, settings, pad=67)
    return [float(learner.learn([batches.at(step)], 0.003)) for step in range(steps)]


def ensemble_losses(device: str, precision: str, layout: str, steps: int = 16) -> list[float]:
    """Train three models together and return their mean loss of each step; batches of several widths take turns."""
    draw = random.Random(0)
    rows = [[1, *(draw.randrange(3, 40) for _ in range(draw.randrange(2, 40))), 2] for _ in range(400)]
    kind = PackedBatches if layout == "packed" else Batches
    batches = kind(Ragged.of(rows), Ragged.of(rows), (0, 0), 512, seed=1)
    torch.manual_seed(0)
    model = Ensemble(
        ModelConfig.of(
            source_vocabulary=40, target_vocabulary=40, d_model=32, heads=4, d_ff=64, encoder_layers=2, decoder_layers=2,
            dropout=0.0, norm="pre", members=3,
        )
    ).to(device)  # fmt: skip
    learner = Learner(model, TrainingConfig.of(precision=precision, batch_tokens=512, layout=layout), pad=0)
    few = batches.per_epoch // 4  # a batch and a narrower one, twice and more often each
    return [float(learner.learn([batches.at(step % few)], 0.003)) for step in range(max(steps, 3 * few))]


def planned_losses(count: int, steps: int = 120) -> list[float]:
    """Train five models on words as `train --ensemble 5` does without other options; return the loss of each step."""
    draw = random.Random(0)
    words = sorted({"".join(draw.choices("abcdefgh", k=draw.randrange(2, 12))) for _ in range(count)})
    pairs, found = [(word, " ".join(word.upper())) for word in words], []
    fit(
        pairs, pairs[:20], pairs[:20], ensemble=5, device=DEVICE, progress=False,
        training={"steps": steps, "checkpoint_every": steps, "evaluate_every": steps},
        on_step=lambda step: found.append(float(step.loss)),
    )  # fmt: skip
    return found


def kernels() -> Iterator[tuple[str, float, float]]:
    """Yield what a kernel is, how far it is from the written equations, and how far it may be."""
    from seq2see.kernels.choose_kernels import scan

    torch.manual_seed(0)
    yield from packed()
    yield from smoothed()
    yield from normed_sums()
    yield from relu_gradients()
    for shape in ((3, 37_000), (2, 4, 1500), (2, 1024)):
        x = 3 * torch.randn(*shape, device=DEVICE)
        x[..., 128:256] = -math.inf  # a part of which all tokens are forbidden
        found, expected = scan(x, LOGITS_PART), _by_parts(x.cpu())
        pairs = [(a.cpu().clamp(min=-1e4), b.clamp(min=-1e4)) for a, b in zip(found, expected, strict=True)]
        worst = max(float((a - b).abs().max()) for a, b in pairs)
        yield f"scan of logits, {shape}", worst, 1e-5


def step_kernels() -> Iterator[tuple[str, float, float]]:
    """Yield what an operation of a decoding step is, how far our kernel is from PyTorch's operations, and may be."""
    from seq2see.kernels import step_kernels as ours
    from seq2see.kernels import step_written as written

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=DEVICE)

    sizes = ((1, 512, 512), (3, 24, 40)) if DEVICE == "cuda" else ((2, 24, 40),)
    for R, D, N in sizes:
        x, w, b, residual = randn(R, D), randn(N, D) / D**0.5, randn(N), randn(R, N)
        first, second = (torch.nn.LayerNorm(width).to(DEVICE) for width in (D, N))
        for norm in (first, second):
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)
        for activation in written.ACTIVATIONS:
            given = (x, w, b, first, activation, residual, second)
            worst = float((ours.product(*given) - written.product(*given)).abs().max())
            yield f"product, {(R, D, N)}, {activation or 'plain'}", worst, 1e-4
        both = (ours.add_norm(x, x.sin(), first), written.add_norm(x, x.sin(), first))
        yield (f"sum and norm, {(R, D)}", max(float((a - b).abs().max()) for a, b in zip(*both, strict=True)), 1e-4)
    for B, beam, L, H, K, V in ((2, 1, 9, 2, 6, 12), (2, 3, 9, 2, 16, 16)):
        R = B * beam
        for place in (0, 5):
            position, qkv = torch.tensor([place], device=DEVICE), randn(R, H * (2 * K + V))
            rows = torch.arange(R, device=DEVICE)[:, None] // beam * beam
            rows = (rows + torch.randint(0, beam, (R, L), device=DEVICE)).int()
            rows[:, place] = torch.arange(R, device=DEVICE)
            buffers = [randn(R, L, H, K), randn(R, L, H, V)]
            others = [one.clone() for one in buffers]
            found = ours.attend_past(qkv, buffers[0], buffers[1], position, rows, beam)
            right = written.attend_past(qkv, others[0], others[1], position, rows, beam)
            pairs = [(found, right), *zip(buffers, others, strict=True)]
            worst = max(float((a - b).abs().max()) for a, b in pairs)
            yield f"attention to the past, {(B, beam, L, H, K, V)}, position {place}", worst, 1e-4
        real = torch.rand(B, L, device=DEVICE) < 0.7
        real[:, 0] = True
        given = (randn(R, H * K), randn(B, L, H, K), randn(B, L, H, V), real, beam)
        worst = float((ours.attend_source(*given) - written.attend_source(*given)).abs().max())
        yield f"attention to the source, {(B, beam, L, H, K, V)}", worst, 1e-4


@torch.no_grad()
def choices() -> Iterator[tuple[str, float, float]]:
    """Yield how a search chooses tokens, how far our kernels leave its state from PyTorch's operations, and may."""
    special, rules = Special(start=1, end=2, pad=0), PAPER.but(length_offset=4)
    torch.manual_seed(3)
    config = ModelConfig.of(source_vocabulary=2100, target_vocabulary=2100, d_model=8, heads=2, d_ff=8, max_length=16)
    model = network_of(config).to(DEVICE).eval()
    for beam in (1, 4):
        sides = [GraphSearch(model, special, 3, 8, 8, rules.but(beam=beam), lambda: None) for _ in range(2)]
        for side in sides:
            side.limits.copy_(torch.tensor([8, 5, 8]))
            side._begin()
        worst = 0.0
        for _ in range(7):
            logits = 3 * torch.randn(3 * beam, 2100, device=DEVICE)
            logits[:, special.end] += 7
            sides[0]._choose_by_kernels(logits, None)
            sides[1].position.add_(1)
            sides[1].choose(logits)
            done = [[h.ids for row in side.beams.hypotheses() for h in row] for side in sides]
            worst = worst if done[0] == done[1] else math.inf
            for name in ("total", "ids", "values", "done_score", "settled"):
                mine, theirs = (getattr(side.beams, name).float().clamp(min=-1e4) for side in sides)
                worst = max(worst, float((mine - theirs).abs().max()))
            for name in ("ancestors", "rows", "last", "position"):
                worst = worst if getattr(sides[0], name).equal(getattr(sides[1], name)) else math.inf
        yield f"choosing tokens, beam {beam}", worst, 1e-4


def packed() -> Iterator[tuple[str, float, float]]:
    """Compare the attention of packed batches, and its gradients, relatively."""
    half = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies no bfloat16
    for (H, K, V), most in itertools.product(((2, 64, 64), (3, 24, 40), (1, 512, 512)), (20, 150)):
        lengths = torch.randint(1, most, (2, 6))
        lengths[:, -1] = 200 - most  # the tail
        of_target, of_source = (torch.arange(6).repeat_interleave(side).to(DEVICE) for side in lengths)
        for of_query, of_key, causal in ((of_target, of_target, True), (of_target, of_source, False)):
            mask = PackedMask(causal, sentences=(of_query, of_key), spans=spans_of(of_query, of_key, causal))
            for dtype, tolerance in ((torch.float32, 1e-5), (half, 2e-2)):
                shapes = ((len(of_query), H, K), (len(of_key), H, K), (len(of_key), H, V), (len(of_query), H, V))
                q, k, v, dz = (torch.randn(*shape, device=DEVICE).to(dtype) for shape in shapes)
                found, right = (
                    gradients(body, [x.to(kind) for x in (q, k, v)], mask, dz.to(kind))
                    for body, kind in ((span_attention, dtype), (written_attention, torch.float64))
                )
                worst = max(
                    float((a - b).norm() / b.norm()) for a, b in zip(found, right, strict=True)
                )  # NaN is no number that is smaller than the tolerance
                yield f"packed attention, {(H, K, V)}, up to {most} tokens, {dtype}", worst, tolerance


def smoothed() -> Iterator[tuple[str, float, float]]:
    """Compare the losses and the gradient of logits, relatively."""
    for (T, V), smoothing in itertools.product(((5, 37_000), (40, 68), (3, 4096)), (0.0, 0.1)):
        right, back = torch.randint(0, V, (T,), device=DEVICE), torch.randn(T, device=DEVICE)
        right[1] = 7  # padding
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
            x = (3 * torch.randn(T, V, device=DEVICE)).to(dtype).requires_grad_()
            exact = x.detach().double().requires_grad_()
            found = operators.smoothed_loss(x, right, 7, smoothing)[0]
            expected = torch.nn.functional.cross_entropy(
                exact, right, ignore_index=7, label_smoothing=smoothing, reduction="none"
            )
            pairs = (
                (found, expected),
                (*torch.autograd.grad(found, x, back), *torch.autograd.grad(expected, exact, back.double())),
            )
            worst = max(float((a - b).norm() / b.norm()) for a, b in pairs)
            yield f"loss, {(T, V)}, smoothing {smoothing}, {dtype}", worst, tolerance


def normed_sums() -> Iterator[tuple[str, float, float]]:
    """Compare the norm of a sum, with what dropout keeps, and its gradients, relatively."""
    from seq2see.kernels import training_kernels as add_norm

    on_gpu, programs = DEVICE == "cuda", add_norm.PROGRAMS
    half = torch.bfloat16 if on_gpu else torch.float16
    add_norm.PROGRAMS = 3  # so that each has several rows
    for (T, D), dropout in itertools.product(((2500 if on_gpu else 9, 512), (45, 256), (50, 24), (1, 8)), (0.0, 0.1)):
        for dtype, tolerance in ((torch.float32, 1e-5), (half, 1e-2)):
            drawn = [torch.randn(*shape, device=DEVICE) for shape in ((T, D), (T, D), (D,), (D,), (T, D))]
            x, h, weight, bias, back = (one.to(dtype) for one in drawn)
            inputs = [one.requires_grad_() for one in (x, h, weight, bias)]
            exact = [one.detach().double().requires_grad_() for one in inputs]
            out, *_, seed = operators.add_norm(*inputs, dropout, 1e-5)
            chosen = mask_of(seed, T, D, dropout)
            share = float((chosen == 0).double().mean())
            bound = 5 * math.sqrt(dropout * (1 - dropout) / (T * D)) + 2**-16
            yield f"share dropped, {(T, D)}, {dropout}", abs(share - dropout), bound
            total = exact[0] + exact[1] * chosen
            right = torch.nn.functional.layer_norm(total, (D,), *exact[2:], 1e-5)
            pairs = [
                (out, right),
                *zip(
                    torch.autograd.grad(out, inputs, back),
                    torch.autograd.grad(right, exact, back.double()),
                    strict=True,
                ),
            ]
            worst = max(float((a - b).detach().norm() / b.detach().norm()) for a, b in pairs)
            yield f"norm of a sum, {(T, D)}, dropout {dropout}, {dtype}", worst, tolerance
    add_norm.PROGRAMS = programs


def relu_gradients() -> Iterator[tuple[str, float, float]]:
    """Compare the gradient of relu and its sum over the rows, relatively."""
    half = torch.bfloat16 if DEVICE == "cuda" else torch.float16
    for T, width in ((2500 if DEVICE == "cuda" else 30, 2048), (7, 100)):
        for dtype, tolerance in ((torch.float32, 1e-5), (half, 1e-2)):
            hidden, back = (torch.randn(T, width, device=DEVICE).to(dtype) for _ in range(2))
            right = torch.where(hidden > 0, back.double(), 0.0)
            pairs = zip(operators.relu_gradient(hidden, back), (right, right.sum(0)), strict=True)
            worst = max(float((a - b).norm() / b.norm()) for a, b in pairs)
            yield f"gradient of relu, {(T, width)}, {dtype}", worst, tolerance


def mask_of(seed: Tensor, T: int, D: int, dropout: float) -> Tensor:
    """Return the factors (T, D) of dropout by the kernels: of h = 1 and x = 0 the sum shows them."""
    from seq2see.kernels import training_kernels as add_norm

    if not dropout:
        return torch.ones(T, D, dtype=torch.float64, device=DEVICE)
    ones = torch.ones(T, D, device=DEVICE)
    total, sizes = torch.empty_like(ones), add_norm._norm_sizes(ones, dropout)
    rows = torch.empty(2, T, device=DEVICE)
    add_norm._norm_forward[(-(-T // sizes["ROWS"]),)](
        ones * 0, ones, ones, ones, seed, torch.empty_like(ones), total, rows[0], rows[1], T, 1e-5, **sizes
    )
    return total.double()


def gradients(
    body: Callable[[Tensor, Tensor, Tensor, Mask], Tensor], inputs: list[Tensor], mask: Mask, dz: Tensor
) -> list[Tensor]:
    """Return a body's answer and the gradients of q, k and v."""
    inputs = [x.requires_grad_() for x in inputs]
    z = body(*inputs, mask)
    return [z.detach(), *torch.autograd.grad(z, inputs, dz)]


def searches() -> Iterator[tuple[str, float, float]]:
    """Yield a kind of search, how far its log-probabilities are from the plain one's (∞: other tokens), and may be."""
    torch.manual_seed(1)
    special = Special(start=1, end=2, pad=0)
    model = network_of(ModelConfig.of(
        source_vocabulary=5000, target_vocabulary=5000, d_model=128, heads=4, d_ff=256, encoder_layers=2,
        decoder_layers=2, max_length=128, norm="pre",
    )).eval()  # fmt: skip
    with torch.no_grad():
        model.decoder.embedding.table.weight[2] *= 2  # so that answers end
    sources = [torch.randint(3, 5000, (length,)).tolist() for length in (3, 9, 17, 24, 40, 5, 11) * 9]
    on_gpu = copy.deepcopy(model).cuda()
    decoder = GraphDecoder(on_gpu, special)
    for beam in (1, 4):
        rules = with_beam(beam)
        for part in (sources, sources[:2]):  # many rows, and few
            plain, found = beam_search(model, part, special, rules), decoder.search(part, rules)
            pairs = [(x[0], y[0]) for x, y in zip(plain, found, strict=True)]
            same = all(a.ids == b.ids for a, b in pairs)
            worst = max(abs(a.log_probability - b.log_probability) / len(a.ids) for a, b in pairs)
            name = f"search, {len(part)} × beam {beam}, lengths {sorted({len(a.ids) for a, _ in pairs})}"
            yield name, worst if same else math.inf, 1e-3
    # several at a time, in threads: the second use of a shape captures it, the third replays it
    engine, parts = TorchEngine(on_gpu, special), [sources[first::9] for first in range(9)] * 8
    engine.batches = WORTH_A_LANE
    expected = [found.ids for found in greedy(model, sources, special)]
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(engine.ids, parts)]
    wrong = sum(ids != expected[first % 9 :: 9] for first, ids in enumerate(answers))
    yield f"{len(parts)} searches in four threads and {len(engine.lanes)} lanes", wrong, 1
    # a decoder that is garbage, with its graphs: a collection at every turn must not free them during a capture
    before, wrong = gc.get_threshold(), 0
    for _ in range(3):
        decoder = GraphDecoder(on_gpu, special)
        decoder.itself = decoder  # type: ignore[attr-defined]  # only the garbage collector frees it
        gc.set_threshold(1)
        try:
            for part in (sources[:40], sources[:40], sources[:2], sources[:2]):
                wrong += [one[0].ids for one in decoder.search(part, with_beam(1))] != expected[: len(part)]
        finally:
            gc.set_threshold(*before)
    yield "searches while others are collected", wrong, 1


def trainings() -> Iterator[tuple[str, float, float]]:
    """Yield a precision, how far its losses are from those of the CPU, relatively, and may be."""
    for width, norm, muon in ((64, "post", 0.0), (64, "pre", 0.0), (64, "pre", 2.0), (320, "post", 0.0)):
        reference = losses("cpu", "float32", width, norm, muon=muon)
        for precision, tolerance in (("float32", 1e-3), ("bfloat16", 3e-2)):
            started = time.perf_counter()
            found = losses("cuda", precision, width, norm, muon=muon)
            worst = max(abs(a - b) / b for a, b in zip(found, reference, strict=True))
            told = f"losses {found[0]:.4f} … {found[-1]:.4f}, {time.perf_counter() - started:.1f} s"
            by = " by Muon" if muon else ""
            yield f"training{by}, d_model {width}, {norm}, {precision}, {told}", worst, tolerance
    for layout in ("padded", "packed"):  # as it is, and captured with all members beside each other
        reference = ensemble_losses("cpu", "float32", layout)
        for precision, tolerance in (("float32", 1e-3), ("bfloat16", 3e-2)):
            found = ensemble_losses("cuda", precision, layout)
            worst = max(abs(a - b) / b for a, b in zip(found, reference, strict=True))
            memory = torch.cuda.max_memory_reserved() / 2**20
            told = f"losses {found[0]:.4f} … {found[-1]:.4f}, {memory:,.0f} MiB"
            yield f"training of an ensemble, {layout}, {precision}, {told}", worst, tolerance
    # with dropout, R-Drop, a guided head and chained words: the loss must fall, and not be NaN
    for count in (800, 4000):
        found = planned_losses(count)
        left = sum(found[-10:]) / sum(found[:10])
        told = f"losses {found[0]:.4f} … {found[-1]:.4f}"
        yield (f"ensemble by the plan for {count} words, {told}", left if math.isfinite(left) else math.inf, 0.8)


def again() -> Iterator[tuple[str, float, float]]:
    """Yield a training by the command and its exit code: two from the start, and one that is stopped and resumed.

    The second finds what the first compiled on disk, and so does the third.
    """
    with TemporaryDirectory() as place:
        data, checkpoints = Path(place) / "pairs.tsv", Path(place) / "third" / "checkpoints"
        numbers = [f"{n:04}" for n in range(2000)]
        for name, part in (("pairs", numbers[:1900]), ("watched", numbers[1900:1920]), ("tested", numbers[1920:1940])):
            data.with_stem(name).write_text("".join(f"{one}\t{one}\n" for one in part), encoding="utf-8")
        environment = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": str(Path(place) / "cache"),
            "TRITON_CACHE_DIR": str(Path(place) / "triton"),
            "PYTHONPATH": sys.path[0],
        }

        def start(out: str, steps: int, *more: str) -> subprocess.Popen[str]:
            # one layer of each kind is compiled for all, so that fewer of them leave nothing out
            command = [sys.executable, "-c", COMPILED, "train", str(data), "--out", str(data.with_name(out)),
                       "--validation", str(data.with_stem("watched")), "--test", str(data.with_stem("tested")),
                       "--device", DEVICE, "--preset", "medium" if DEVICE == "cuda" else "tiny", "--steps", str(steps),
                       "--set", "model.encoder_layers=2", "--set", "model.decoder_layers=2",
                       "--set", "training.checkpoint_every=20", "--set", "training.evaluate_every=1000",
                       "--set", "training.average=1", *more]  # fmt: skip
            return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.DEVNULL)

        def ended(process: subprocess.Popen[str], what: str) -> tuple[str, float, float]:
            nonlocal started
            code, before, started = process.wait(), started, time.perf_counter()
            return f"{what}, {started - before:.1f} s", code, 1

        started = time.perf_counter()
        yield ended(start("first", 40), "training by the command, nothing compiled before")
        yield ended(start("second", 40), "the same again, compiled before")
        stopped = start("third", 1000)
        while stopped.poll() is None and not list(checkpoints.glob("*")):
            time.sleep(0.05)
        stopped.terminate()
        name, code, _ = ended(stopped, "a third that is stopped")
        yield name, abs(code - 130), 1
        yield ended(start("third", 1000, "--resume"), "it resumes")


PARTS = {
    "kernels": kernels,
    "step": step_kernels,
    "choices": choices,
    "search": searches,
    "training": trainings,
    "again": again,
}


def main() -> None:
    """Compare and say so."""
    good = True
    for part in sys.argv[1:] or PARTS:
        for name, worst, tolerance in PARTS[part]():
            good &= worst < tolerance
            figures.show({"check": name, "largest difference": worst, "tolerance": tolerance})
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
