"""Exports a model folder to CTranslate2. Each token is compared with our own model before the export is kept.

Without PyTorch, an export is made from the numbers in the folder alone. There is nothing to compare it with then, but the
same function has written it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec
from safetensors import safe_open

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.decoding.ctranslate2_engine import CTranslate2Engine
from seq2see.decoding.engines import FORMAT, NOTE, WITHOUT, digest_of, sizes_of
from seq2see.decoding.hypothesis import PAPER, Hypothesis, Special
from seq2see.errors import EightBitsError, FolderError, UserError
from seq2see.files import STEP, remove_leftovers, send_to_disk, synchronise, temporary_prefix
from seq2see.interchange.checks import made_up
from seq2see.interchange.names import layers_of, parts_of
from seq2see.storage.folder import Tokenizers, is_step, weights_head, weights_path

if TYPE_CHECKING:
    from torch import nn

    from seq2see.model.transformer import Transformer

Numbers = Mapping[str, np.ndarray]  # the weights by their names in the model, and the positions

QUANTIZATIONS = ("float32", "int8")
TOLERANCE = 1e-3  # of a log-probability in fp32
INPUTS = 64  # random inputs for the check, if none are given
#: Of a log-probability in eight bits. Rounding moves it by up to 1.4 in `en-fr` and `en-de`; on an x86 CPU without VNNI
#: something else moves it by 20 in small models.
WRONG = 5.0

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "swish": common_spec.Activation.SWISH,
}


@dataclass(frozen=True)
class Parity:
    """How far a converted model's greedy answers agree with ours."""

    inputs: int
    same_answers: int
    tokens: int
    same_tokens: int
    largest_difference: float  # of a log-probability, on our answers

    def __str__(self) -> str:
        return (
            f"{self.same_answers:,} of {self.inputs:,} answers and {self.same_tokens:,} of {self.tokens:,} tokens "
            f"agree, and the log-probabilities differ by at most {self.largest_difference:.1e}"
        )


# --- the specification -------------------------------------------------------------------------------------------


def numbers_of(model: nn.Module) -> Numbers:
    """Return the numbers of a network, computed positions included."""
    tensors = {**model.state_dict(), **dict(model.named_buffers())}
    return {name: tensor.detach().cpu().float().numpy() for name, tensor in tensors.items()}


def numbers_in(path: Path, config: ModelConfig) -> Numbers:
    """Return the same numbers from a model folder, without PyTorch."""
    file = weights_path(path)
    head = weights_head(file)
    if any(kind == "BF16" for kind, _ in head.values()) or config.positions not in ("paper", "learned", "rotary"):
        raise ImportError("PyTorch is needed to read these weights.")
    found: dict[str, np.ndarray] = {}
    with safe_open(file, "np") as stored:
        for name in filter(lambda name: not is_step(name), head):
            rounded = head[name][0] == "I8"
            numbers = stored.get_tensor(name).astype(np.float32)
            found[name] = numbers * stored.get_tensor(name + STEP) if rounded else numbers
    if config.share_embeddings:
        found["decoder.embedding.table.weight"] = found["encoder.embedding.table.weight"]
    if config.share_output:
        found["output.weight"] = found["decoder.embedding.table.weight"]
    if config.positions == "paper":  # section 3.5
        angles = np.arange(config.max_length)[:, None] / 10000 ** (np.arange(0, config.d_model, 2) / config.d_model)
        table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(angles), -1).astype(np.float32)
        found |= {f"{half}.embedding.positions": table for half in ("encoder", "decoder")}
    return found


def specification(numbers: Numbers, config: ModelConfig, tokenizers: Tokenizers) -> TransformerSpec:
    """Describe a model to CTranslate2, weights included."""
    _expressible(config)
    shape: dict[str, Any] = {
        "num_heads": config.heads,
        "pre_norm": config.norm == "pre",
        "activation": ACTIVATIONS[config.activation],
        "layernorm_embedding": config.embedding_norm,
    }
    if config.positions == "rotary":  # 0: all of a head, in pairs (i, i + K/2)
        shape |= {"rotary_dim": 0, "rotary_interleave": False}
    spec = TransformerSpec(
        transformer_spec.TransformerEncoderSpec(config.encoder_layers, **shape),
        transformer_spec.TransformerDecoderSpec(config.decoder_layers, **shape),
    )
    if config.positions == "rotary":
        del spec.encoder.position_encodings  # the decoder has none then
    halves = ("encoder", spec.encoder, spec.encoder.embeddings[0]), ("decoder", spec.decoder, spec.decoder.embeddings)
    for ours, half, embedding in halves:
        half.scale_embeddings = config.scale_embeddings  # by √d_model there as here
        embedding.weight = numbers[f"{ours}.embedding.table.weight"].copy()  # quantization writes into what it is given
        if hasattr(half, "position_encodings"):
            half.position_encodings.encodings = numbers[f"{ours}.embedding.positions"].copy()
        if config.embedding_norm:
            _norm(half.layernorm_embedding, numbers, f"{ours}.embedding.norm")
        if config.norm == "pre":
            _norm(half.layer_norm, numbers, f"{ours}.norm")
    joined: dict[str, list[str]] = {}
    for name, number, part in parts_of(layers_of(config)):
        place = f"{name}/layer_{number}/{part.ctranslate2}"
        joined.setdefault(place, []).append(f"{name}.layers.{number}.{part.ours}")
    for place, names in joined.items():
        (_norm if place.endswith("norm") else _linear)(_at(spec, place), numbers, *names)
    _linear(spec.decoder.projection, numbers, "output")
    spec.register_source_vocabulary(tokenizers.source.vocabulary())
    spec.register_target_vocabulary(tokenizers.target.vocabulary())
    for key, value in settings_of(tokenizers).items():
        setattr(spec.config, key, value)
    return spec


def settings_of(tokenizers: Tokenizers) -> dict[str, str | bool | float]:
    """Return the settings of an export.

    Our ids include start and end already. A vocabulary without an unknown token must name another one, or
    CTranslate2 would add it.
    """
    target, unknown = tokenizers.target, tokenizers.target.unknown
    if unknown is None or tokenizers.source.unknown is None:
        unknown = target.pad
    start, end, other = target.tokens([target.start, target.end, unknown])
    return {"bos_token": start, "eos_token": end, "decoder_start_token": start, "unk_token": other,
            "add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": 1e-5}  # fmt: skip


def _expressible(config: ModelConfig) -> None:
    if config.positions == "relative":
        raise UserError(
            "This model has relative positions, which the export to CTranslate2 does not have: answer with "
            "--engine torch."
        )
    if not config.d_k == config.d_v == config.d_model / config.heads:
        raise UserError(
            f"This model has d_k {config.d_k} and d_v {config.d_v} with {config.heads} heads, but CTranslate2 "
            f"supports only heads of d_model / heads = {config.d_model}/{config.heads}: answer with --engine torch."
        )


def _linear(spec: common_spec.LinearSpec, numbers: Numbers, *names: str) -> None:
    """Set one matrix from one or several: CTranslate2 joins the matrices that have a common input."""
    spec.weight = np.concatenate([numbers[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in numbers:
        spec.bias = np.concatenate([numbers[f"{name}.bias"] for name in names])


def _norm(spec: common_spec.LayerNormSpec, numbers: Numbers, name: str) -> None:
    spec.gamma, spec.beta = numbers[f"{name}.weight"], numbers[f"{name}.bias"]


def _at(spec: Any, place: str) -> Any:
    """Return the part of a specification that CTranslate2 calls so; layer_2 is the third of a list."""
    for name in place.split("/"):
        listed, _, number = name.rpartition("_")
        spec = getattr(spec, name) if hasattr(spec, name) else getattr(spec, listed)[int(number)]
    return spec


# --- the folder --------------------------------------------------------------------------------------------------


def export(
    path: Path,
    model: Transformer | ModelConfig,
    tokenizers: Tokenizers,
    quantization: str = "float32",
    inputs: Sequence[str] = (),
    rules: DecodingConfig = PAPER,
    place: Path | None = None,
    count: int = INPUTS,
) -> Parity | None:
    """Write ``ctranslate2/`` into a model folder, or into another ``place``, whole and checked, or not at all.

    It is checked on ``inputs``, or else on ``count`` random ones. Without PyTorch there is only the ``ModelConfig``: then
    eight bits are compared with float32, and float32 with nothing.
    """
    if quantization not in QUANTIZATIONS:
        raise UserError(f"Quantization {quantization!r} is not one of {', '.join(QUANTIZATIONS)}.")
    config, network = (model, None) if isinstance(model, ModelConfig) else (model.config, model)
    sources = tokenizers.source.encode_batch(inputs) if inputs else made_up(config, tokenizers, count)
    place = place or path
    try:
        place.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place)
        temporary = Path(tempfile.mkdtemp(dir=place, prefix=temporary_prefix(FORMAT)))
    except OSError as error:
        raise FolderError(f"{place} cannot be written: {error.strerror}.") from None
    try:
        rules = rules.but(beam=1, **WITHOUT)  # a model with such rules is answered by torch
        rules = rules if rules.no_repeat != 1 else rules.but(no_repeat=0)
        exact, parity = _write(temporary / "float32", path, network, config, tokenizers), None
        if network is not None:
            from seq2see.decoding.search import greedy

            ours = greedy(network, sources, Special.of(tokenizers), rules)
            parity = _compare(exact, ours, sources, rules, exact=True)
        else:
            ours = [one for [one] in exact.search(sources, rules)]
        if quantization != "float32":
            # The layout was checked in float32, so that any difference is due to rounding.
            rounded = _write(temporary / quantization, path, network, config, tokenizers, quantization)
            parity = _compare(rounded, ours, sources, rules, exact=False)
            if parity.largest_difference > WRONG:
                raise EightBitsError(
                    f"In eight bits this model answers wrongly on this CPU: a log-probability moves by "
                    f"{parity.largest_difference:.0f} (at most {WRONG:.0f} was expected). Use float32."
                )
        note = {
            "model": digest_of(path, config),
            "sizes": sizes_of(temporary / quantization),
            "quantization": quantization,
            "parity": str(parity or "not compared, without PyTorch"),
            "written_by": f"ctranslate2 {ctranslate2.__version__}",
        }
        (temporary / quantization / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
        send_to_disk(temporary / quantization)
        if (place / FORMAT).exists():
            (place / FORMAT).rename(temporary / "old")
        (temporary / quantization).rename(place / FORMAT)
        synchronise(place)
    finally:
        shutil.rmtree(temporary)
    return parity


def _write(
    place: Path,
    folder: Path,
    network: Transformer | None,
    config: ModelConfig,
    tokenizers: Tokenizers,
    quantization: str = "float32",
) -> CTranslate2Engine:
    """Write an export, and return the engine that reads it."""
    numbers = numbers_in(folder, config) if network is None else numbers_of(network)
    spec = specification(numbers, config, tokenizers)
    spec.validate()
    spec.optimize(quantization)
    place.mkdir()
    spec.save(str(place))
    vocabularies = tokenizers.source.vocabulary(), tokenizers.target.vocabulary()
    return CTranslate2Engine(place, vocabularies, Special.of(tokenizers), config, compute_type=quantization)


def _compare(
    engine: CTranslate2Engine, ours: list[Hypothesis], sources: list[list[int]], rules: DecodingConfig, exact: bool
) -> Parity:
    """Compare greedy answers, and the log-probabilities on ours; where it must be exact, a difference is an error."""
    theirs = [hypotheses[0] for hypotheses in engine.search(sources, rules)]
    scored = engine.score(sources, [answer.ids for answer in ours], rules)
    largest, same_tokens = 0.0, 0
    for number, (a, b, values) in enumerate(zip(ours, theirs, scored, strict=True), 1):
        differences = [abs(x - y) for x, y in zip(a.log_probabilities, values, strict=True)]
        largest = max(largest, *differences)
        same_tokens += sum(x == y for x, y in zip(a.ids, b.ids, strict=False))
        parting = next((t for t, (x, y) in enumerate(zip(a.ids, b.ids, strict=False)) if x != y), None)
        # If two tokens are equally likely up to rounding, either is right.
        tie = parting is not None and abs(a.log_probabilities[parting] - b.log_probabilities[parting]) < TOLERANCE
        if exact and (not max(differences) < TOLERANCE or (a.ids != b.ids and not tie)):
            raise FolderError(
                f"The converted model does not answer like this one on input {number} of {len(ours)} (log-probabilities "
                f"differ by {max(differences):.2g}): nothing was written. Please report this with the config.toml."
            )
    return Parity(
        inputs=len(ours),
        same_answers=sum(a.ids == b.ids for a, b in zip(ours, theirs, strict=True)),
        tokens=sum(len(a.ids) for a in ours),
        same_tokens=same_tokens,
        largest_difference=largest,
    )
