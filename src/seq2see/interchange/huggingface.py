"""Reads Hugging Face folders of MarianMT, M2M100, NLLB, BART, mBART, Pegasus and their like, without their model code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.errors import FolderError
from seq2see.interchange.huggingface_text import Languages, tokenizers_of
from seq2see.interchange.imported import (
    LARGEST_SETTING,
    LARGEST_WEIGHTS,
    Imported,
    Renamed,
    brief,
    checked_ids,
    decoding_config,
    foreign,
    ids_of,
    model_config,
    one_number_of_heads,
    read_json,
)
from seq2see.interchange.names import renamed
from seq2see.interchange.tensors import of_folder
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.storage.weights import put_weights

#: Our settings for each family.
FAMILIES: dict[str, dict[str, Any]] = {
    "marian": dict(norm="post", positions="halves", output_bias=True),
    "m2m_100": dict(norm="pre", positions="fairseq"),
    "bart": dict(norm="post", positions="learned", embedding_norm=True, output_bias=True),
    "mbart": dict(norm="pre", positions="learned", embedding_norm=True, output_bias=True),
    "pegasus": dict(norm="pre", positions="halves", output_bias=True),
    "mvp": dict(norm="post", positions="learned", embedding_norm=True, output_bias=True),
    "plbart": dict(norm="post", positions="learned", embedding_norm=True, output_bias=True),
    "blenderbot": dict(norm="pre", positions="learned", output_bias=True),
    "fsmt": dict(norm="post", positions="fairseq"),
}
#: Default values of each family, for settings that config.json omits.
DEFAULTS: dict[str, dict[str, Any]] = {
    "m2m_100": dict(scale_embedding=True, activation_function="relu"),
    "plbart": dict(scale_embedding=True),
    "fsmt": dict(scale_embedding=True, activation_function="relu"),
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
LARGEST_CARD = 2**16  # characters of a README that are searched for the licence
HALVES = ("encoder", "decoder")
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
SKIPPED = 2  # unused first rows of BART's learned positions; Blenderbot has none
RELATIVE = "relative positions and norms without mean and bias{}, unlike the paper's model; CTranslate2 can run it"
SPARSE = "attention to only a part of the text; for shorter texts, import a model of the family {}"
#: Known families that cannot be imported: what is different, and what to use instead.
REFUSED = {
    "t5": f"T5 has {RELATIVE.format('')}",
    "mt5": f"mT5 has {RELATIVE.format(', and a gated feed-forward network')}",
    "umt5": f"UMT5 has {RELATIVE.format(', with separate relative positions in each layer')}",
    "longt5": f"LongT5 has {RELATIVE.format(', and sparse attention in its encoder')}",
    "switch_transformers": "Switch sends each token to one of many feed-forward networks; transformers can run it",
    "nllb-moe": "NLLB-MoE sends each token to a few of many feed-forward networks; import a dense NLLB-200 model (600M, "
    "1.3B, 3.3B) instead",
    "pegasus_x": f"Pegasus-X has {SPARSE.format('pegasus')}",
    "led": f"LED has {SPARSE.format('bart')}",
    "bigbird_pegasus": f"BigBird-Pegasus has {SPARSE.format('pegasus')}",
    "blenderbot-small": "BlenderbotSmall normalises its decoder's embedding before it adds positions, which is not "
    "supported; import Blenderbot instead",
    "longformer": "Longformer has only an encoder; a model with an encoder and a decoder was expected",
    "prophetnet": "ProphetNet predicts several tokens ahead in separate streams; BART and Pegasus do the same tasks",
    "xlm-prophetnet": "XLM-ProphetNet predicts several tokens ahead in separate streams; mBART does the same tasks",
    "whisper": "Whisper reads audio, not text; CTranslate2 (faster-whisper) can run it",
    "speech_to_text": "it reads audio, not text",
    "seamless_m4t": "SeamlessM4T reads and writes audio; import NLLB to translate text",
    "encoder-decoder": "it joins two models such as BERT and GPT-2, whose norms and positions are not the paper's; "
    "train a model of the paper's shape on its answers",
    "bert": "BERT has only an encoder; a model with an encoder and a decoder was expected",
    "roberta": "RoBERTa has only an encoder; a model with an encoder and a decoder was expected",
    "gpt2": "GPT-2 has only a decoder; a model with an encoder and a decoder was expected",
    "llama": "Llama has only a decoder; a model with an encoder and a decoder was expected",
}
#: Settings of ``generate`` that change answers and that our search lacks, with the values that turn them off.
WITHOUT: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,), "num_beam_groups": (1,), "diversity_penalty": (0.0,), "sequence_bias": (),
    "exponential_decay_length_penalty": (), "encoder_repetition_penalty": (1.0,), "renormalize_logits": (False,),
    "guidance_scale": (1.0,), "constraints": (), "force_words_ids": (), "forced_decoder_ids": (), "stop_strings": (),
    "max_time": (), "penalty_alpha": (0.0,), "dola_layers": (), "watermarking_config": (), "token_healing": (False,),
}  # fmt: skip
#: Special tokens, which are read from config.json if generation_config.json omits them.
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def read_huggingface(path: Path, languages: Languages = (None, None)) -> Imported:
    """Read a folder with config.json, weights and a tokenizer."""
    family, model, weights, generation = _network(path)
    sizes = model.source_vocabulary, model.target_vocabulary
    tokenizers = tokenizers_of(path, family, generation, sizes, languages)
    decoding, notes = _decoding(generation, model)
    if family == "fsmt":
        notes.append(
            "Texts are split at spaces and by BPE: first tokenize them with Moses (sacremoses), as for the model's "
            "training."
        )
    return Imported(f"Hugging Face, {family}", model, decoding, tokenizers, weights, _licence(path), notes)


def model_of(path: Path) -> tuple[Transformer, DecodingConfig]:
    """Read the network and the rules of its search, without a tokenizer."""
    _, config, weights, generation = _network(path)
    model = network_of(config)
    put_weights(model, dict(weights), path.name)
    return model.eval(), _decoding(generation, config)[0]


def _network(path: Path) -> tuple[str, ModelConfig, Renamed, dict[str, Any]]:
    """Return the family, the config, the weights under our names, and all settings of config and generation."""
    config = read_json(path / "config.json")
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        reason = REFUSED.get(str(family), f"the family {brief(family)} is not supported")
        if family == "t5" and "gated" in str(config.get("feed_forward_proj")):
            reason = f"T5 v1.1 has {RELATIVE.format(', and a gated feed-forward network')}"
        raise FolderError(f"{path.name} cannot be imported: {reason}. Supported: {', '.join(FAMILIES)}.")
    config = {**DEFAULTS.get(family, {}), **config}
    if family in ("m2m_100", "fsmt") and config.get("pad_token_id", 1) != 1:
        raise FolderError(
            f"{path.name} cannot be imported: its pad_token_id is {brief(config['pad_token_id'])}, but this family "
            "requires 1, from which it counts positions."
        )
    whole = of_folder(path)
    theirs = Renamed({name.removeprefix("model."): partial(whole.__getitem__, name) for name in whole})
    if family == "fsmt":
        config = _as_two_vocabularies(theirs, config)
    elif family != "marian":
        _cut_target(theirs, config)
    if config.get("use_prompt"):
        raise FolderError(
            f"{path.name} cannot be imported: it has learned prompts in each layer; only MVP without them is supported."
        )
    tables = _tables(theirs, bool(config.get("share_encoder_decoder_embeddings", True)))
    model = _model(config, family, (_same(theirs, *tables[:2]), _same(theirs, *tables[1:])))
    bias = theirs.get(BIAS)
    for name in (BIAS, OUTPUT):
        if name not in tables[:2] and (name not in tables or model.share_output):
            theirs.readers.pop(name, None)
    weights = renamed(theirs, model, tables, bias, 0 if family == "blenderbot" else SKIPPED)
    weights = weights.widened({half: _number(config, f"{half}_ffn_dim") for half in HALVES}, model)
    return family, model, weights, _generation(path, config)


def _as_two_vocabularies(theirs: Renamed, config: dict[str, Any]) -> dict[str, Any]:
    """Convert FSMT's settings to Marian's: two vocabularies, and tables of positions without their two unused rows."""
    projection = "decoder.output_projection.weight"
    if projection in theirs:
        theirs.readers[OUTPUT] = theirs.readers.pop(projection)
    for half in HALVES:
        _cut(theirs, f"{half}.embed_positions.weight", slice(2, None))
    sizes = {"vocab_size": config.get("src_vocab_size"), "decoder_vocab_size": config.get("tgt_vocab_size")}
    tied = OUTPUT not in theirs or bool(config.get("tie_word_embeddings"))
    return {**config, **sizes, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": tied}


def _cut(theirs: Renamed, name: str, rows: slice) -> None:
    """Let these rows of a table be all that is read of it, if it is there."""
    if name in theirs:
        read = theirs.readers[name]
        theirs.readers[name] = lambda: read()[rows]


def _cut_target(theirs: Renamed, config: dict[str, Any]) -> None:
    """Remove the rows with which our export extends the smaller of two vocabularies."""
    if config.get("share_encoder_decoder_embeddings", True):
        return
    if BIAS in theirs:
        theirs.readers[BIAS] = partial(torch.ravel, theirs[BIAS])
    for half, names in (
        ("encoder", ("encoder.embed_tokens.weight",)),
        ("decoder", ("decoder.embed_tokens.weight", OUTPUT, BIAS)),
    ):
        if config.get(f"{half}_vocab_size"):
            for name in names:
                _cut(theirs, name, slice(_number(config, f"{half}_vocab_size")))


def _generation(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``generate``: those of generation_config.json, or of config.json where it is missing."""
    file = path / "generation_config.json"
    if not file.is_file():
        return {key: value for key, value in config.items() if value is not None}
    found = {key: value for key, value in read_json(file).items() if value is not None}
    return {key: config[key] for key in SPECIAL if config.get(key) is not None} | found


def _number(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 <= value <= LARGEST_SETTING:
        raise FolderError(f"config.json has {name} = {brief(value)}: a whole number was expected.")
    return value


def _model(config: dict[str, Any], family: str, same: tuple[bool, bool]) -> ModelConfig:
    """Return the shape of a model; ``same``: whether both halves share a table, and whether the output shares it."""
    heads = one_number_of_heads(_number(config, "encoder_attention_heads"), _number(config, "decoder_attention_heads"))
    activation = config.get("activation_function", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise FolderError(f"The activation {brief(activation)} is not supported. Supported: {', '.join(ACTIVATIONS)}.")
    if config.get("is_gated_act"):
        raise FolderError("config.json asks for a gated feed-forward network, which is not supported.")
    if (tied := config.get("tie_word_embeddings")) not in (None, True, False):
        raise FolderError(f"config.json has tie_word_embeddings = {brief(tied)}: true or false was expected.")
    source = _number(config, "vocab_size")
    target = _number(config, "decoder_vocab_size") if config.get("decoder_vocab_size") else source
    together = bool(config.get("share_encoder_decoder_embeddings", True))
    if family != "marian" and not together:
        source = _number(config, "encoder_vocab_size") if config.get("encoder_vocab_size") else source
    return model_config(
        source_vocabulary=source,
        target_vocabulary=target if not together else source,
        d_model=_number(config, "d_model"),
        heads=heads,
        d_ff=max(_number(config, f"{half}_ffn_dim") for half in HALVES),
        encoder_layers=_number(config, "encoder_layers"),
        decoder_layers=_number(config, "decoder_layers"),
        dropout=_real(config, "dropout", 0.1),
        activation=ACTIVATIONS[activation],
        max_length=_number(config, "max_position_embeddings"),
        scale_embeddings=bool(config.get("scale_embedding", False)),
        share_embeddings=together and same[0],
        share_output=bool(config.get("tie_word_embeddings", True)) and same[1],
        **FAMILIES[family],
    )


def _tables(theirs: Mapping[str, Tensor], together: bool) -> tuple[str, str, str]:
    """Name the embedding tables of both halves, and the output projection, as ``transformers`` takes them.

    Each half uses its own table if the file has one, else the shared table, else any that exists.
    """
    common, own, other = ["shared.weight"] if together else [], *(f"{half}.embed_tokens.weight" for half in HALVES)
    source, target, output = (
        next((name for name in names if name in theirs), names[0])
        for names in (
            (own, *common, other, OUTPUT),
            (other, *common, OUTPUT, *([own] if together else [])),
            (OUTPUT, *common, other),
        )
    )
    return source, target, output


def _same(theirs: Mapping[str, Tensor], *names: str) -> bool:
    """Whether two tables are the same: by name, or because their numbers are equal."""
    if names[0] == names[1] or not all(name in theirs for name in names):
        return names[0] == names[1]
    one, other = (theirs[name] for name in names)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.data_ptr() == other.data_ptr() or bool(torch.equal(one, other))


def _decoding(generation: dict[str, Any], model: ModelConfig) -> tuple[DecodingConfig, list[str]]:
    """Return the rules of ``generate`` for our search, and a note on those that it lacks."""
    ends = ids_of(generation, "eos_token_id")
    words = generation.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) for word in words):
        raise FolderError(f"The generation settings have bad_words_ids = {brief(words)}: lists of ids were expected.")
    alone = [number for word in words if len(word) == 1 for number in checked_ids(word, "bad_words_ids")]
    out = {*alone} - {*ends} | {*ids_of(generation, "suppress_tokens")}
    missing = [
        f"{name} = {brief(generation[name])}"
        for name, idle in WITHOUT.items()
        if generation.get(name) is not None and generation[name] not in idle
    ]
    if any(len(word) > 1 for word in words):
        missing.append("bad_words_ids of several tokens")
    early = generation.get("early_stopping", False)
    if early not in (True, False):
        missing.append(f"early_stopping = {brief(early)} (false is used)")
    forced = ids_of(generation, "forced_eos_token_id")
    if forced and forced != ends[:1]:
        missing.append(f"forced_eos_token_id = {brief(generation['forced_eos_token_id'])}")
    notes = [f"Not followed, since the search does not have these settings: {', '.join(missing)}."] if missing else []
    # ``generate`` counts the start token of the decoder, too.
    longest = _setting(generation, "max_new_tokens", 0) or max(1, _setting(generation, "max_length", 20) - 1)
    shortest = _setting(generation, "min_new_tokens", 0) or max(0, _setting(generation, "min_length", 0) - 1)
    return (
        decoding_config(
            beam=_setting(generation, "num_beams", 1) or 1,
            length_penalty=_real(generation, "length_penalty", 1.0),
            penalty="length",
            length_ratio=0.0,
            length_offset=max(1, min(longest, model.max_length - 1)),
            stopping="full" if early is True else "beaten",
            suppressed=tuple(sorted(out)),
            first_suppressed=tuple(sorted({*ids_of(generation, "begin_suppress_tokens")})),
            other_ends=tuple(ends[1:]),
            min_length=min(shortest, model.max_length),
            forced_end=forced == ends[:1] and bool(forced),
            no_repeat=_setting(generation, "no_repeat_ngram_size", 0),
            no_repeat_source=_setting(generation, "encoder_no_repeat_ngram_size", 0),
            repetition_penalty=_real(generation, "repetition_penalty", 1.0),
        ),
        notes,
    )


def _setting(settings: dict[str, Any], name: str, default: int) -> int:
    value = settings.get(name, default)
    if type(value) is not int or not 0 <= value <= LARGEST_SETTING:
        raise FolderError(
            f"The generation settings have {name} = {brief(value)}: a whole number up to {LARGEST_SETTING:,} "
            "was expected."
        )
    return value


def _real(settings: dict[str, Any], name: str, default: float) -> float:
    value = settings.get(name, default)
    if type(value) not in (int, float) or not abs(value) <= LARGEST_SETTING:
        raise FolderError(f"The settings have {name} = {brief(value)}: a number was expected.")
    return float(value)


def _licence(path: Path) -> str:
    """Return the licence that the README states in its head."""
    card = path / "README.md"
    if not card.is_file():
        return ""
    with foreign(card, LARGEST_WEIGHTS).open(encoding="utf-8", errors="replace") as file:
        text = file.read(LARGEST_CARD)
    head = re.match(r"---\n(.*?)^---", text, re.DOTALL | re.MULTILINE)
    stated = re.search(r"^licen[sc]e:\s*(?:-\s*)?(\S[^\n]*)", head[1], re.MULTILINE) if head else None
    return stated[1].strip(" \"'")[:100] if stated else ""
