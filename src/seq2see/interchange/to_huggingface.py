"""Exports a model folder to Hugging Face, and compares it in ``transformers`` with our model before it is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2see.config import DISTANCES, Config, ModelConfig
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.readers import padded
from seq2see.errors import UserError
from seq2see.files import whole_or_nothing
from seq2see.interchange.checks import Compared, compared, made_up
from seq2see.interchange.names import HALVES
from seq2see.kernels.layers import table_of
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers
from seq2see.storage.weights import write_weights
from seq2see.tokenizers.tokenizer import Tokenizer

#: The family for each place of the norms, kind of positions, and norm of the embedding.
FAMILIES = {
    ("post", "halves", False): ("marian", "MarianMTModel"),
    ("pre", "halves", False): ("pegasus", "PegasusForConditionalGeneration"),
    ("post", "learned", True): ("bart", "BartForConditionalGeneration"),
    ("pre", "learned", True): ("mbart", "MBartForConditionalGeneration"),
    ("pre", "fairseq", False): ("m2m_100", "M2M100ForConditionalGeneration"),
}
#: The page of a model on the Hub, with what its search needs to know, and a snippet to begin with.
README = """---
library_name: transformers
pipeline_tag: text2text-generation
tags:
- seq2see
---

{card}

## In `transformers`

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "{folder}"  # or its name on the Hub
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
answers = {answers}
ids = model.generate(**tokenizer([{text}], return_tensors="pt"))
print(answers.batch_decode(ids, skip_special_tokens=True))
```
{two}"""
TWO = """
Source and target have vocabularies of their own: `tokenizer` cuts texts, and the one in `target/` reads answers.
"""
INPUTS = 32
LONGEST = 40  # tokens of an answer in the check
NEVER = -1e9  # the bias of a row that stands for no token


def export(
    out: Path, config: Config, model: Transformer, tokenizers: Tokenizers, inputs: Sequence[str] = (), card: str = ""
) -> Compared:
    """Write a folder with config, weights, tokenizer and generation config, whole and checked, or not at all."""
    family, name = _family(config.model)
    if family == "m2m_100" and tokenizers.target.pad != 1:
        raise UserError(
            "The family m2m_100 counts positions from its padding token, which must be 1, but is "
            f"{tokenizers.target.pad}."
        )
    sources = tokenizers.source.encode_batch(list(inputs)) if inputs else made_up(config.model, tokenizers, INPUTS)
    with whole_or_nothing(out) as place:
        described = _config(config.model, tokenizers, family, name)
        (place / "config.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        generation = _generation(config, tokenizers)
        (place / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
        write_weights(place / "model.safetensors", weights_for(model, family))
        _write_tokenizer(place, tokenizers.source, config.model.max_length)
        if not tokenizers.shared:
            (place / "target").mkdir()
            _write_tokenizer(place / "target", tokenizers.target, config.model.max_length)
        text = tokenizers.source.decode(sources[len(sources) // 2])
        (place / "README.md").write_text(_readme(out.name, card, text, tokenizers.shared), encoding="utf-8")
        special = Special.of(tokenizers)
        logits_of = _logits_of(place, name, model, sources, special.pad)
        return compared(model, sources, special, config.decoding, LONGEST, logits_of)


def _readme(folder: str, card: str, text: str, shared: bool) -> str:
    answers = "tokenizer" if shared else 'AutoTokenizer.from_pretrained(folder, subfolder="target")'
    card = card.strip() or f"# {folder}\n\nWritten by `seq2see export --to hf`."
    quoted = json.dumps(text, ensure_ascii=False)
    return README.format(card=card, folder=folder, answers=answers, text=quoted, two="" if shared else TWO)


def _family(config: ModelConfig) -> tuple[str, str]:
    order = "halves" if config.positions == "paper" else config.positions
    found = FAMILIES.get((config.norm, order, config.embedding_norm))
    if config.positions in DISTANCES:
        raise UserError(
            f"No Hugging Face family has {config.positions} positions with the rest of this model: answer with seq2see."
        )
    if found is None:
        raise UserError(
            f"No Hugging Face family has {config.norm}-norm with positions {config.positions!r}"
            f"{' and a norm of the embedding' if config.embedding_norm else ''}: export it to ctranslate2 or onnx."
        )
    if not config.d_k == config.d_v == config.d_model / config.heads:
        raise UserError(
            f"This model has d_k {config.d_k} and d_v {config.d_v} with {config.heads} heads, but Hugging Face's models "
            f"support only heads of d_model / heads = {config.d_model}/{config.heads}."
        )
    other_size = config.source_vocabulary != config.target_vocabulary
    if found[0] == "m2m_100" and (config.output_bias or not config.share_output or other_size):
        raise UserError(
            "The family m2m_100 has one vocabulary and no bias on its logits, unlike this model: export it to "
            "ctranslate2 or onnx."
        )
    return found


def order_of(config: ModelConfig) -> Tensor:
    """Return the order of d_model in which the paper's sines and cosines stand in halves."""
    if config.positions != "paper":
        return torch.arange(config.d_model)
    return torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])


def weights_for(model: Transformer, family: str) -> dict[str, Tensor]:
    """Return the weights under Hugging Face's names, with d_model in its order, which changes no result."""
    order = order_of(model.config)
    theirs = {part.ours: part.fairseq for part in HALVES["decoder"]}
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        x, parts = parameter.detach().cpu(), name.split(".")
        if name.endswith("table.weight"):
            shared = model.config.share_embeddings
            found["model.shared.weight" if shared else f"model.{parts[0]}.embed_tokens.weight"] = x[:, order]
        elif name == "output.weight":
            found["lm_head.weight"] = x[:, order]
        elif name == "output.bias":
            found["final_logits_bias"] = x[None]
        elif name.endswith("embedding.positions"):
            skipped = torch.zeros(2, x.shape[1])  # BART's tables begin with two rows that no position uses
            found[f"model.{parts[0]}.embed_positions.weight"] = torch.cat([skipped, x])[:, order]
        elif parts[1] == "embedding":
            found[f"model.{parts[0]}.layernorm_embedding.{parts[-1]}"] = x[order]
        elif parts[1] == "norm":
            found[f"model.{parts[0]}.layer_norm.{parts[-1]}"] = x[order]
        else:
            layer, part = ".".join(parts[:3]), theirs[".".join(parts[3:-1])]
            found[f"model.{layer}.{part}.{parts[-1]}"] = _ordered(parts, x, order)
    if family == "pegasus":  # its sines and cosines must be in the file
        for half in ("encoder", "decoder"):
            table = table_of(model.config.max_length, model.config.d_model, "halves")
            found[f"model.{half}.embed_positions.weight"] = table
    if model.config.share_output and not model.config.output_bias and family != "m2m_100":
        found["final_logits_bias"] = torch.zeros(1, model.config.target_vocabulary)
    if family != "marian" and not model.config.share_embeddings:
        _put_two_tables(found, model.config)
    return {name: tensor.contiguous() for name, tensor in found.items()}


def _put_two_tables(found: dict[str, Tensor], config: ModelConfig) -> None:
    """Give a family of one vocabulary two tables, both of the larger size. No answer has a token beyond its own."""
    source, target = (f"model.{half}.embed_tokens.weight" for half in ("encoder", "decoder"))
    found.setdefault("lm_head.weight", found[target])
    found["model.shared.weight"] = found[target]  # it must exist, but is not used
    size = max(config.source_vocabulary, config.target_vocabulary)
    for name in (source, target, "lm_head.weight", "model.shared.weight"):
        found[name] = F.pad(found[name], (0, 0, 0, size - len(found[name])))
    found["final_logits_bias"] = F.pad(found["final_logits_bias"], (0, size - config.target_vocabulary), value=NEVER)


def _ordered(parts: list[str], x: Tensor, order: Tensor) -> Tensor:
    """Reorder the rows or columns that have the size d_model."""
    if parts[4] in ("w_o", "w_2", "norm"):
        return x[order]  # they write d_model
    return x[:, order] if x.ndim == 2 else x


def _config(config: ModelConfig, tokenizers: Tokenizers, family: str, name: str) -> dict[str, Any]:
    target, larger = tokenizers.target, max(config.source_vocabulary, config.target_vocabulary)
    return {
        "model_type": family,
        "architectures": [name],
        "vocab_size": config.source_vocabulary if family == "marian" else larger,
        "encoder_vocab_size": config.source_vocabulary,
        "decoder_vocab_size": config.target_vocabulary,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "max_position_embeddings": config.max_length,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "scale_embedding": config.scale_embeddings,
        "share_encoder_decoder_embeddings": config.share_embeddings,
        "tie_word_embeddings": config.share_output and (family == "marian" or config.share_embeddings),
        "is_encoder_decoder": True,
        "pad_token_id": target.pad,
        "bos_token_id": target.start,
        "eos_token_id": target.end,
        "decoder_start_token_id": target.start,
        "torch_dtype": "float32",
    }


def _generation(config: Config, tokenizers: Tokenizers) -> dict[str, Any]:
    target, rules = tokenizers.target, config.decoding
    if len(target.before) > 2:
        raise UserError(
            "Several tokens are forced at the beginning of an answer, but Hugging Face's settings support only one."
        )
    found: dict[str, Any] = {
        "pad_token_id": target.pad,
        "bos_token_id": target.start,
        "eos_token_id": target.end,
        "decoder_start_token_id": target.start,
        "max_length": rules.limit(config.model.max_length, config.model.max_length) + 1,
        "num_beams": rules.beam,
    }
    if rules.beam > 1:
        found |= {"length_penalty": rules.length_penalty, "early_stopping": rules.stopping == "full"}
    if len(target.before) == 2:
        found["forced_bos_token_id"] = target.before[1]
    if rules.forced_end:
        found["forced_eos_token_id"] = target.end
    if rules.suppressed:
        found["bad_words_ids"] = [[number] for number in rules.suppressed]
    if rules.other_ends:
        found["eos_token_id"] = [target.end, *rules.other_ends]
    if rules.min_length:
        found["min_length"] = rules.min_length + 1  # ``generate`` counts the start token of the decoder, too
    for name, value, idle in (
        ("begin_suppress_tokens", list(rules.first_suppressed), []),
        ("no_repeat_ngram_size", rules.no_repeat, 0),
        ("encoder_no_repeat_ngram_size", rules.no_repeat_source, 0),
        ("repetition_penalty", rules.repetition_penalty, 1.0),
    ):
        if value != idle:
            found[name] = value
    return found


def _write_tokenizer(place: Path, tokenizer: Tokenizer, longest: int) -> None:
    """Write the files that AutoTokenizer loads."""
    start, end, pad = tokenizer.tokens([tokenizer.start, tokenizer.end, tokenizer.pad])
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": start,
        "eos_token": end,
        "pad_token": pad,
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if tokenizer.unknown is not None:
        about["unk_token"] = tokenizer.tokens([tokenizer.unknown])[0]
    (place / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (place / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _logits_of(
    place: Path, name: str, model: Transformer, sources: list[list[int]], pad: int
) -> Callable[[list[list[int]]], Tensor]:
    """Load the folder with ``transformers``; return what computes its logits, (B, T, V)."""
    import transformers

    theirs = getattr(transformers, name).from_pretrained(place).eval()
    source, mask = padded(sources, pad)
    real = (source != pad).long() if mask.keys is None else mask.keys.long()

    def logits(rows: list[list[int]]) -> Tensor:
        target, _ = padded(rows, pad)
        found: Tensor = theirs(input_ids=source, attention_mask=real, decoder_input_ids=target).logits
        return found[..., : model.config.target_vocabulary]

    return logits
