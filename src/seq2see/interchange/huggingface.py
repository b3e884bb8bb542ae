"""Reads Hugging Face folders of MarianMT, M2M100 and NLLB, BART, mBART and Pegasus, without their model code."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.errors import FolderError
from seq2see.interchange.huggingface_text import Languages, tokenizers_of
from seq2see.interchange.imported import Imported, Renamed, model_config, read_json
from seq2see.interchange.names import renamed
from seq2see.interchange.tensors import of_folder
from seq2see.model.transformer import Transformer
from seq2see.model.weights import put_weights

#: What each family is, in our settings.
FAMILIES: dict[str, dict[str, Any]] = {
    "marian": dict(norm="post", positions="halves", output_bias=True),
    "m2m_100": dict(norm="pre", positions="fairseq"),
    "bart": dict(norm="post", positions="learned", embedding_norm=True, output_bias=True),
    "mbart": dict(norm="pre", positions="learned", embedding_norm=True, output_bias=True),
    "pegasus": dict(norm="pre", positions="halves", output_bias=True),
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
SKIPPED = 2  # rows of BART's learned positions that belong to none
REFUSED = {
    "t5": "T5 has relative positions, another norm and a gated feed-forward network, which are not the paper's",
    "mt5": "mT5 has relative positions, another norm and a gated feed-forward network, which are not the paper's",
}
#: Settings of generation that our search does not have, and the values that mean nothing.
WITHOUT = {"no_repeat_ngram_size": (0, None), "min_length": (0, None), "repetition_penalty": (1.0, None),
           "num_beam_groups": (1, None), "diversity_penalty": (0.0, None), "do_sample": (False, None),
           "encoder_no_repeat_ngram_size": (0, None), "sequence_bias": (None,)}  # fmt: skip


def read_huggingface(path: Path, languages: Languages = (None, None)) -> Imported:
    """Read a folder with config.json, weights and a tokenizer."""
    family, model, weights, generation = _network(path)
    sizes = model.source_vocabulary, model.target_vocabulary
    tokenizers = tokenizers_of(path, family, generation, sizes, languages)
    decoding, notes = _decoding(generation, model)
    return Imported(f"Hugging Face, {family}", model, decoding, tokenizers, weights, _licence(path), notes)


def model_of(path: Path) -> tuple[Transformer, DecodingConfig]:
    """Read the network alone, where there is no tokenizer, and the rules of its search."""
    _, config, weights, generation = _network(path)
    model = Transformer(config)
    put_weights(model, dict(weights), path.name)
    return model.eval(), _decoding(generation, config)[0]


def _network(path: Path) -> tuple[str, ModelConfig, Renamed, dict[str, Any]]:
    """Return the family, the config, the weights under our names, and all settings of config and generation."""
    config = read_json(path / "config.json")
    family = config.get("model_type")
    if family not in FAMILIES:
        reason = REFUSED.get(str(family), f"its architecture is {family!r}")
        raise FolderError(f"{path.name} cannot be imported: {reason}. Known are: {', '.join(FAMILIES)}.")
    if family == "m2m_100" and config.get("pad_token_id", 1) != 1:
        raise FolderError(
            f"{path.name} cannot be imported: it counts positions from pad_token_id {config['pad_token_id']}, and 1 was "
            "expected."
        )
    generation = {**config, **_generation(path)}
    whole = of_folder(path)
    theirs = Renamed({name.removeprefix("model."): partial(whole.__getitem__, name) for name in whole})
    model = _model(config, str(family))
    tables = _tables(model)
    bias = theirs.get("final_logits_bias")
    for name in ("final_logits_bias", "lm_head.weight"):
        if name not in tables or model.share_output:
            theirs.readers.pop(name, None)
    return str(family), model, renamed(theirs, model, tables, bias, SKIPPED), generation


def _generation(path: Path) -> dict[str, Any]:
    file = path / "generation_config.json"
    return {k: v for k, v in read_json(file).items() if v is not None} if file.is_file() else {}


def _number(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int:
        raise FolderError(f"config.json has {name} = {value!r}: a whole number was expected.")
    return value


def _model(config: dict[str, Any], family: str) -> ModelConfig:
    for a, b in (
        ("encoder_attention_heads", "decoder_attention_heads"),
        ("encoder_ffn_dim", "decoder_ffn_dim"),
    ):
        if _number(config, a) != _number(config, b):
            raise FolderError(f"config.json has {a} other than {b}: here both halves have the same.")
    activation = config.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise FolderError(
            f"The activation {activation!r} is not one of those known here: {', '.join(ACTIVATIONS)}."
        )
    if config.get("is_gated_act") or config.get("tie_word_embeddings") not in (None, True, False):
        raise FolderError("config.json asks for a gated feed-forward network, which is not known here.")
    source = _number(config, "vocab_size")
    target = config.get("decoder_vocab_size") or source
    together = bool(config.get("share_encoder_decoder_embeddings", True))
    return model_config(
        source_vocabulary=source,
        target_vocabulary=target if not together else source,
        d_model=_number(config, "d_model"),
        heads=_number(config, "encoder_attention_heads"),
        d_ff=_number(config, "encoder_ffn_dim"),
        encoder_layers=_number(config, "encoder_layers"),
        decoder_layers=_number(config, "decoder_layers"),
        dropout=float(config.get("dropout", 0.1)),
        activation=ACTIVATIONS[activation],
        max_length=_number(config, "max_position_embeddings"),
        scale_embeddings=bool(config.get("scale_embedding", False)),
        share_embeddings=together,
        share_output=bool(config.get("tie_word_embeddings", True)),
        **FAMILIES[family],
    )


def _tables(model: ModelConfig) -> tuple[str, str, str]:
    """Name the embedding tables of both halves, and the output projection."""
    if model.share_embeddings:
        return "shared.weight", "shared.weight", "lm_head.weight"
    return "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"


def _decoding(generation: dict[str, Any], model: ModelConfig) -> tuple[DecodingConfig, list[str]]:
    """Return the rules by which ``generate`` answers, and what of them our search does not have."""
    out = []
    for words in generation.get("bad_words_ids") or []:
        if len(words) == 1:
            out.append(int(words[0]))
    out += [int(number) for number in generation.get("suppress_tokens") or []]
    notes = []
    missing = [
        f"{name} = {generation[name]}" for name, idle in WITHOUT.items() if generation.get(name) not in idle
    ]
    if any(len(words) > 1 for words in generation.get("bad_words_ids") or []):
        missing.append("bad_words_ids of several tokens")
    if missing:
        notes.append(f"Not followed, since this search has no such settings: {', '.join(missing)}.")
    # Theirs counts the token that the decoder starts with.
    longest = int(generation.get("max_new_tokens") or max(1, int(generation.get("max_length") or 20) - 1))
    early = generation.get("early_stopping", False)
    if early not in (True, False):
        notes.append(f"early_stopping = {early!r} is not known here: false was taken.")
    return (
        DecodingConfig(
            beam=int(generation.get("num_beams") or 1),
            length_penalty=float(generation.get("length_penalty", 1.0)),
            penalty="length",
            length_ratio=0.0,
            length_offset=min(longest, model.max_length - 1),
            stopping="full" if early is True else "beaten",
            suppressed=tuple(sorted(set(out))),
            forced_end=generation.get("forced_eos_token_id") is not None,
        ),
        notes,
    )


def _licence(path: Path) -> str:
    """Return the licence that the README states in its head."""
    card = path / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    first, *lines = text.split("\n")
    if first != "---" or "---" not in (line[:3] for line in lines):
        return ""
    end = next(number for number, line in enumerate(lines) if line.startswith("---"))
    for number, line in enumerate(lines[:end]):
        if line.startswith(("license:", "licence:")):
            stated = "\n".join([line[8:], *lines[number + 1 : end]]).strip()
            return stated.split("\n")[0].strip().strip("\"'")
    return ""
