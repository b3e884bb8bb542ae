"""A larger teacher for a translator, its translations, and the pairs that its pupil learns from.

    python -m benchmarks.distil grow en-fr GROWN --encoder-layers 12 --decoder-layers 3 --d-ff 2048
    python -m benchmarks.distil sources MIXTURE SOURCES.tsv [--more OTHER-MIXTURE --most 150000]
    python -m benchmarks.distil answers TEACHER SOURCES.tsv ANSWERS.tsv [--part 1/3] [--seconds 300] [--device cuda]
    python -m benchmarks.distil pupil MIXTURE PUPIL.tsv ANSWERS.tsv …
    python -m benchmarks.distil blend NEW OLD OUT --share 0.75

`grow` copies a model into a larger one that computes the same function; `seq2see train --from GROWN` goes on from there.
MIXTURE is a folder of benchmarks.mixture. `answers` keeps, of the four answers of a beam, the one nearest to the
reference (sequence-level interpolation, Kim and Rush 2016). `pupil` mixes the answers with people's best pairs. `blend`
averages the weights of a model and of the model that it was trained from.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import torch
from torch import Tensor

import seq2see
from benchmarks.mixture import Pair, rows_of
from seq2see.errors import UserError
from seq2see.files import write_atomically
from seq2see.storage import folder
from seq2see.storage.weights import weights_bytes, weights_of

BEAM = 4
BLOCK = 60_000  # sources that are sorted by length together; a search that ends early has seen all lengths
LONGEST = 160  # tokens of a source
OFTEN = 10  # a pair that a mixture has so often, such as a phrase, keeps its number
NEWS = 3  # times that people's news are learned; a teacher's translations of them are learned twice
OUTPUTS = ("w_o.weight", "w_o.bias", "w_2.weight", "w_2.bias")  # what a sub-layer adds to its input


def grow(name: str, out: Path, encoder_layers: int, decoder_layers: int, d_ff: int) -> int:
    """Write a deeper and wider copy of a model that computes the same function; return its number of parameters.

    A new layer is a copy of the next one whose outputs are zero, so that with the layer norm first it adds nothing.
    New units of a feed-forward layer have random inputs and no output.
    """
    model = seq2see.load(name, engine="torch")
    shape, weights = model.config.model, weights_of(model.transformer)
    if shape.norm != "pre":
        raise UserError(f"{name} has norm = {shape.norm!r}: only a model with the layer norm first can grow.")
    if encoder_layers < shape.encoder_layers or decoder_layers < shape.decoder_layers or d_ff < shape.d_ff:
        raise UserError(
            f"{name} has {shape.encoder_layers}+{shape.decoder_layers} layers and d_ff {shape.d_ff}: "
            "at least as much was expected."
        )
    torch.manual_seed(1)
    grown = {part: tensor for part, tensor in weights.items() if ".layers." not in part}
    for side, old, new in (
        ("encoder", shape.encoder_layers, encoder_layers),
        ("decoder", shape.decoder_layers, decoder_layers),
    ):
        places = [round((number + 1) * new / old) - 1 for number in range(old)]  # of the old layers
        for place in range(new):
            before = f"{side}.layers.{next(number for number, at in enumerate(places) if at >= place)}."
            for part, tensor in weights.items():
                if not part.startswith(before):
                    continue
                wide = _widened(part, tensor.clone(), d_ff)
                silent = place not in places and part.endswith(OUTPUTS)
                grown[f"{side}.layers.{place}.{part.removeprefix(before)}"] = torch.zeros_like(wide) if silent else wide
    larger = replace(shape, encoder_layers=encoder_layers, decoder_layers=decoder_layers, d_ff=d_ff)
    folder.write(out, replace(model.config, model=larger), model.tokenizers, weights_bytes(grown), model.card)
    return sum(tensor.numel() for tensor in grown.values())


def _widened(part: str, tensor: Tensor, d_ff: int) -> Tensor:
    """Add units to a feed-forward layer."""
    if part.endswith("w_1.weight"):
        return torch.cat([tensor, torch.randn(d_ff - len(tensor), tensor.shape[1]) * tensor.std()])
    if part.endswith("w_1.bias"):
        return torch.cat([tensor, torch.zeros(d_ff - len(tensor))])
    if part.endswith("w_2.weight"):
        return torch.cat([tensor, torch.zeros(len(tensor), d_ff - tensor.shape[1])], 1)
    return tensor


def blend(new: str, old: str, out: Path, share: float) -> None:
    """Write a model whose weights are ``share`` of the new model's and the rest of the old one's."""
    models = [seq2see.load(name, engine="torch") for name in (new, old)]
    if models[0].config.model != models[1].config.model:
        raise UserError(f"{new} and {old} have different shapes: their weights cannot be averaged.")
    first, second = (weights_of(model.transformer) for model in models)
    mean = {part: share * tensor + (1 - share) * second[part] for part, tensor in first.items()}
    folder.write(out, models[0].config, models[0].tokenizers, weights_bytes(mean), models[0].card)


def pairs_of(path: Path) -> list[Pair]:
    """Return the pairs of a file."""
    return [(row[0], row[1]) for row in rows_of(path, header=False)]


def sources(mixture: Path, more: Path | None, most: int) -> list[Pair]:
    """Return each source of a mixture with a reference, and sources of another mixture, which have none."""
    references = dict(reversed(pairs_of(mixture / "train.tsv"))) | dict(pairs_of(mixture / "news.tsv"))
    found = [*references.items()]
    if more is not None:
        held = {
            pair[0].casefold()
            for path in (*mixture.glob("validation*.tsv"), mixture / "test.tsv")
            for pair in pairs_of(path)
        }
        others = {pair[0] for part in ("train", "news") for pair in pairs_of(more / f"{part}.tsv")}
        new = [text for text in sorted(others - references.keys()) if text.casefold() not in held]
        Random(2).shuffle(new)
        found += [(text, "") for text in new[:most]]
    Random(3).shuffle(found)
    return found


def _grams(text: str) -> Counter[str]:
    text = f" {text} "
    return Counter(text[at : at + 4] for at in range(len(text) - 3))


def nearest(answers: Sequence[str], reference: str) -> str:
    """Return the answer with most groups of four letters in common with the reference, or the first without one."""
    if not reference:
        return answers[0]
    wanted = _grams(reference)

    def common(answer: str) -> float:
        found = _grams(answer)
        return 2 * (found & wanted).total() / max(1, found.total() + wanted.total())

    return max(answers, key=common)


def answers(name: str, pairs: Sequence[Pair], device: str, seconds: float) -> Iterator[tuple[str, str, bool]]:
    """Yield sources with their answers, and whether an answer is not the likeliest, until the seconds are over."""
    model = seq2see.load(name, device=device, engine="torch")
    rules = model.config.decoding.but(beam=BEAM, length_ratio=1.5, length_offset=14)
    engine = model.network.engine_for(len(pairs), BEAM, BEAM)
    ids = model.tokenizers.source.encode_batch([source for source, _ in pairs])
    order, end = [*range(len(pairs))], time.monotonic() + seconds
    Random(1).shuffle(order)
    for start in range(0, len(order), BLOCK):
        block = [row for row in order[start : start + BLOCK] if len(ids[row]) <= LONGEST]
        block.sort(key=lambda row: len(ids[row]))
        at = 0
        while at < len(block):
            width = len(ids[block[min(at + 255, len(block) - 1)]])
            batch = block[at : at + (1024 if width <= 24 else 512 if width <= 64 else 256)]
            at += len(batch)
            found = engine.search([ids[row] for row in batch], rules, BEAM)
            texts = iter(model.tokenizers.target.decode_batch([one.ids for several in found for one in several]))
            for row, several in zip(batch, found, strict=True):
                candidates = [next(texts) for _ in several]
                best = nearest(candidates, pairs[row][1])
                yield pairs[row][0], best, best != candidates[0]
            if time.monotonic() > end:
                return


def is_sound(source: str, answer: str) -> bool:
    """Whether an answer has a likely length and does not repeat itself."""
    words = answer.split()
    likely = 0.55 < (len(answer) + 8) / (len(source) + 8) < 2
    return bool(words) and likely and (len(words) <= 8 or len({*words}) >= 0.4 * len(words))


def pupil(mixture: Path, taught: Iterable[Pair]) -> list[Pair]:
    """Return what a pupil learns from.

    These are the sound answers, those to news twice; people's pairs that the mixture has more than once, once; phrases
    as often as the mixture has them; people's news; and the pairs of the mixture without an answer.
    """
    counts, news = Counter(pairs_of(mixture / "train.tsv")), pairs_of(mixture / "news.tsv")
    references = dict([*counts]) | dict(news)
    kept = [
        (source, answer)
        for source, answer in taught
        if is_sound(source, answer) and (source != answer or references.get(source) == answer)
    ]
    answered, of_news = {source for source, _ in kept}, {source for source, _ in news}
    rows = kept + [pair for pair in kept if pair[0] in of_news] + news * NEWS
    for pair, count in counts.items():
        if count >= OFTEN:
            rows += [pair] * count
        elif count > 1 or pair[0] not in answered:
            rows.append(pair)
    Random(4).shuffle(rows)
    return rows


def _write(path: Path, rows: Iterable[Sequence[str]]) -> None:
    write_atomically(path, "".join("\t".join(row) + "\n" for row in rows).encode())


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    one = steps.add_parser("grow", help="write a larger copy of a model")
    one.add_argument("model")
    one.add_argument("out", type=Path)
    for option in ("--encoder-layers", "--decoder-layers", "--d-ff"):
        one.add_argument(option, type=int, required=True)
    one = steps.add_parser("sources", help="write the sources of a mixture with a reference each")
    one.add_argument("mixture", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--more", type=Path, help="another mixture, whose sources are taken without a reference")
    one.add_argument("--most", type=int, default=sys.maxsize, help="most sources of the other mixture")
    one = steps.add_parser("answers", help="write a teacher's answers")
    one.add_argument("model")
    one.add_argument("sources", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts, for several processes")
    one.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    one.add_argument("--device", default="auto")
    one = steps.add_parser("pupil", help="mix answers with people's best pairs")
    one.add_argument("mixture", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("answers", type=Path, nargs="+")
    one = steps.add_parser("blend", help="average the weights of two models")
    one.add_argument("new")
    one.add_argument("old")
    one.add_argument("out", type=Path)
    one.add_argument("--share", type=float, required=True, help="of the new weights, from 0 to 1")
    given = parser.parse_args()
    try:
        if given.step == "grow":
            count = grow(given.model, given.out, given.encoder_layers, given.decoder_layers, given.d_ff)
            print(f"{given.out}: {count:,} parameters.")
        elif given.step == "blend":
            blend(given.new, given.old, given.out, given.share)
        elif given.step == "sources":
            found = sources(given.mixture, given.more, given.most)
            _write(given.out, found)
            print(f"{given.out}: {len(found):,} sources.")
        elif given.step == "answers":
            part, parts = map(int, given.part.split("/"))
            rows = pairs_of(given.sources)[part - 1 :: parts]
            taught = [*answers(given.model, rows, given.device, given.seconds)]
            _write(given.out, [pair[:2] for pair in taught])
            others = sum(row[2] for row in taught)
            print(f"{given.out}: {len(taught):,} of {len(rows):,} sources, {others:,} answers are not the likeliest.")
        else:
            mixed = pupil(given.mixture, (pair for path in given.answers for pair in pairs_of(path)))
            _write(given.out, mixed)
            print(f"{given.out}: {len(mixed):,} pairs.")
    except UserError as error:
        sys.exit(f"distil: {error}")


if __name__ == "__main__":
    main()
