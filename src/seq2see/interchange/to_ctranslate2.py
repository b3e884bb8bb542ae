"""Exports a model folder to CTranslate2. Each token is compared with our own model before the export is kept."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec
from torch import Tensor, nn

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.decoding.ctranslate2_engine import CTranslate2Engine
from seq2see.decoding.engines import FORMAT, NOTE, WITHOUT, digest_of, sizes_of
from seq2see.decoding.hypothesis import PAPER, Hypothesis, Special
from seq2see.decoding.search import greedy
from seq2see.errors import EightBitsError, FolderError, UserError
from seq2see.files import remove_leftovers, send_to_disk, synchronise, temporary_prefix
from seq2see.interchange.checks import made_up
from seq2see.interchange.weights import layers_of, parts_of
from seq2see.model.positions import Embedding
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers

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


def specification(model: Transformer, tokenizers: Tokenizers) -> TransformerSpec:
    """Describe a model to CTranslate2, weights included."""
    config = model.config
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
    for half, ours in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        half.scale_embeddings = config.scale_embeddings
        if config.embedding_norm:
            _norm(half.layernorm_embedding, ours.embedding.norm)  # type: ignore[arg-type]
    if config.positions == "rotary":
        del spec.encoder.position_encodings  # the decoder has none then
    _embedding(spec.encoder.embeddings[0], spec.encoder, model.encoder.embedding)
    _embedding(spec.decoder.embeddings, spec.decoder, model.decoder.embedding)
    joined: dict[str, list[Any]] = {}
    for name, number, part in parts_of(layers_of(config)):
        module = model.get_submodule(f"{name}.layers.{number}.{part.ours}")
        joined.setdefault(f"{name}/layer_{number}/{part.ctranslate2}", []).append(module)
    for place, modules in joined.items():
        (_norm if place.endswith("norm") else _linear)(_at(spec, place), *modules)
    if config.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder.norm)
        _norm(spec.decoder.layer_norm, model.decoder.norm)
    _linear(spec.decoder.projection, model.output)
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


def _numbers(x: Tensor) -> np.ndarray:
    return x.detach().cpu().float().numpy().copy()  # quantization writes into what it is given


def _linear(spec: common_spec.LinearSpec, *modules: nn.Linear) -> None:
    """Set one matrix from one or several: CTranslate2 joins the matrices that have a common input."""
    spec.weight = np.concatenate([_numbers(module.weight) for module in modules])
    if modules[0].bias is not None:
        spec.bias = np.concatenate([_numbers(module.bias) for module in modules])


def _norm(spec: common_spec.LayerNormSpec, module: nn.Module) -> None:
    assert isinstance(module, nn.LayerNorm)
    spec.gamma, spec.beta = _numbers(module.weight), _numbers(module.bias)


def _embedding(
    spec: common_spec.EmbeddingsSpec,
    half: transformer_spec.TransformerEncoderSpec | transformer_spec.TransformerDecoderSpec,
    module: Embedding,
) -> None:
    spec.weight = _numbers(module.table.weight)  # scaled by √d_model there as here
    if hasattr(half, "position_encodings"):
        half.position_encodings.encodings = _numbers(module.positions)


def _at(spec: Any, place: str) -> Any:
    """Return the part of a specification that CTranslate2 calls so; layer_2 is the third of a list."""
    for name in place.split("/"):
        listed, _, number = name.rpartition("_")
        spec = getattr(spec, name) if hasattr(spec, name) else getattr(spec, listed)[int(number)]
    return spec


# --- the folder --------------------------------------------------------------------------------------------------


def export(
    path: Path,
    model: Transformer,
    tokenizers: Tokenizers,
    quantization: str = "float32",
    inputs: Sequence[str] = (),
    rules: DecodingConfig = PAPER,
    place: Path | None = None,
    count: int = INPUTS,
) -> Parity:
    """Write ``ctranslate2/`` into a model folder, or into another ``place``, whole and checked, or not at all.

    It is checked on ``inputs``, or else on ``count`` random ones.
    """
    if quantization not in QUANTIZATIONS:
        raise UserError(f"Quantization {quantization!r} is not one of {', '.join(QUANTIZATIONS)}.")
    sources = tokenizers.source.encode_batch(inputs) if inputs else made_up(model.config, tokenizers, count)
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
        ours = greedy(model, sources, Special.of(tokenizers), rules)
        parity = _write(temporary / "float32", model, tokenizers, "float32", sources, ours, rules)
        if quantization != "float32":
            # The layout was checked in float32, so that any difference is due to rounding.
            parity = _write(temporary / quantization, model, tokenizers, quantization, sources, ours, rules)
            if parity.largest_difference > WRONG:
                raise EightBitsError(
                    f"In eight bits this model answers wrongly on this CPU: a log-probability moves by "
                    f"{parity.largest_difference:.0f} (at most {WRONG:.0f} was expected). Use float32."
                )
        note = {
            "model": digest_of(path, model.config),
            "sizes": sizes_of(temporary / quantization),
            "quantization": quantization,
            "parity": str(parity),
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
    path: Path,
    model: Transformer,
    tokenizers: Tokenizers,
    quantization: str,
    sources: list[list[int]],
    ours: list[Hypothesis],
    rules: DecodingConfig,
) -> Parity:
    spec = specification(model, tokenizers)
    spec.validate()
    spec.optimize(quantization)
    path.mkdir()
    spec.save(str(path))
    engine = CTranslate2Engine(
        path,
        (tokenizers.source.vocabulary(), tokenizers.target.vocabulary()),
        Special.of(tokenizers),
        model.config,
        compute_type=quantization,
    )
    return _compare(engine, ours, sources, rules, exact=quantization == "float32")


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
