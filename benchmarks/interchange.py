"""Imports beside ``transformers``: the largest difference of logits, and how many answers are those of ``generate``.

Models of each family have random weights, norms and biases; inputs are random. No tokenizer takes part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from seq2see.decoding.hypothesis import Special
from seq2see.decoding.search import beam_search, greedy, padded
from seq2see.errors import UserError
from seq2see.interchange.huggingface import model_of
from seq2see.model.transformer import Transformer

V, BATCH, TIE = 400, 50, 1e-4
SHAPE = dict(vocab_size=V, d_model=64, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
             decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128,
             scale_embedding=True)  # fmt: skip
#: For each family: its class, its special ids, and what it forces.
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Marian": ("MarianMTModel", dict(pad_token_id=V - 1, eos_token_id=0, decoder_start_token_id=V - 1,
               activation_function="swish"), dict(bad_words_ids=[[V - 1]], forced_eos_token_id=0)),
    "M2M100": ("M2M100ForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
               activation_function="relu"), dict(forced_bos_token_id=7)),
    "Bart": ("BartForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=2),
             dict(forced_bos_token_id=0, forced_eos_token_id=2, early_stopping=True)),
    "MBart": ("MBartForConditionalGeneration", dict(pad_token_id=1, eos_token_id=2, decoder_start_token_id=9),
              dict(forced_eos_token_id=2)),
    "Pegasus": ("PegasusForConditionalGeneration", dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
                activation_function="relu"), dict(length_penalty=0.8)),
}  # fmt: skip

#: Shapes of published models. NLLB's is scaled down: a third of its layers, an eighth of its vocabulary.
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "opus-mt": ("Marian", dict(vocab_size=58_101, d_model=512, encoder_layers=6, decoder_layers=6,
                encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
                max_position_embeddings=512)),
    "nllb-600M scaled down": ("M2M100", dict(vocab_size=32_000, d_model=1024, encoder_layers=4, decoder_layers=4,
                encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
                max_position_embeddings=1024)),
    "bart-base": ("Bart", dict(vocab_size=50_265, d_model=768, encoder_layers=6, decoder_layers=6,
                encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
                max_position_embeddings=1024, scale_embedding=False)),
}  # fmt: skip


def interchange(count: int = 500) -> Iterator[dict[str, Any]]:
    """Compare each family on so many inputs."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            "The package transformers is not installed: pip install 'seq2see[interchange]'."
        ) from None
    for name in FAMILIES:
        yield _family(transformers, name, count)


def published() -> Iterator[dict[str, Any]]:
    """Compare the logits of models as large as published ones, on a few inputs."""
    import transformers

    for shape, (name, sizes) in PUBLISHED.items():
        theirs, ours, _ = _both(transformers, name, sizes)
        differences = [
            _difference(theirs, ours, *_batch(8, 60), FAMILIES[name][1]["pad_token_id"]) for _ in range(3)
        ]
        yield {"shape": shape, "family": name, "inputs": 24, "largest_logit_difference": max(differences)}


def _both(transformers: Any, name: str, sizes: dict[str, Any]) -> tuple[Any, Transformer, Any]:
    """Make a model of a family with random weights; return it, what we import of it, and its rules of decoding."""
    kind, ids, rules_of = FAMILIES[name]
    torch.manual_seed(1)
    theirs = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**{**SHAPE, **ids, **sizes}))
    for key, parameter in theirs.named_parameters():
        if parameter.requires_grad:
            scale = 0.3 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            parameter.data = torch.randn_like(parameter) * scale + ("norm" in key and key.endswith("weight"))
    theirs.eval()
    theirs.generation_config.update(max_length=30, num_beams=4, **rules_of)
    with tempfile.TemporaryDirectory() as place:
        theirs.save_pretrained(place)
        ours, rules = model_of(Path(place))
    return theirs, ours, rules


def _batch(rows: int, longest: int) -> tuple[list[list[int]], torch.Tensor]:
    """Draw sources of different lengths, and targets of one length."""
    lengths = torch.randint(1, longest, (rows,)).tolist()
    return [torch.randint(10, V - 10, (n,)).tolist() for n in lengths], torch.randint(10, V - 10, (rows, 12))


@torch.no_grad()
def _difference(
    theirs: Any, ours: Transformer, sources: list[list[int]], target: torch.Tensor, pad: int
) -> float:
    """Return the largest difference of logits, relative to the largest logit, with padding in the batch."""
    source, mask = padded(sources, pad)
    logits = theirs(input_ids=source, attention_mask=_real(source, mask), decoder_input_ids=target).logits
    return float((logits - ours(source, target, mask)).abs().max() / logits.abs().max())


def _real(source: torch.Tensor, mask: Any) -> torch.Tensor:
    return torch.ones_like(source) if mask.keys is None else mask.keys.long()


def _family(transformers: Any, name: str, count: int) -> dict[str, Any]:
    _, ids, rules_of = FAMILIES[name]
    theirs, ours, rules = _both(transformers, name, {})
    forced = (rules_of["forced_bos_token_id"],) if "forced_bos_token_id" in rules_of else ()
    special = Special(ids["decoder_start_token_id"], ids["eos_token_id"], ids["pad_token_id"], forced)
    record: dict[str, Any] = {"family": name, "inputs": count, "largest_logit_difference": 0.0}
    same, ties = {1: 0, 4: 0}, {1: 0, 4: 0}
    for first in range(0, count, BATCH):
        sources, target = _batch(min(BATCH, count - first), 20)
        difference = _difference(theirs, ours, sources, target, special.pad)
        record["largest_logit_difference"] = max(record["largest_logit_difference"], difference)
        source, mask = padded(sources, special.pad)
        real = _real(source, mask)
        for beam in (1, 4):
            with torch.no_grad():
                rows = theirs.generate(input_ids=source, attention_mask=real, num_beams=beam).tolist()
            expected = [_cut(row[1:], special.end) for row in rows]
            if beam == 1:
                found = [answer.ids for answer in greedy(ours, sources, special, rules.but(beam=1))]
            else:
                found = [best[0].ids for best in beam_search(ours, sources, special, rules.but(beam=4))]
            for row, (x, y) in enumerate(zip(found, expected, strict=True)):
                same[beam] += x == y
                ties[beam] += x != y and _is_tie(ours, sources[row], special, rules, x, y)
    record |= {"greedy_same": same[1], "greedy_ties": ties[1], "beam_4_same": same[4], "beam_4_ties": ties[4]}
    return record


def _cut(row: list[int], end: int) -> list[int]:
    return row[: row.index(end) + 1] if end in row else row


@torch.no_grad()
def _is_tie(ours: Transformer, source: list[int], special: Special, rules: Any, *answers: list[int]) -> bool:
    """Whether two answers have the same score up to rounding."""
    scores = []
    for answer in answers:
        logits = ours(torch.tensor([source]), torch.tensor([[special.start, *answer[:-1]]]))[0].log_softmax(
            -1
        )
        values = logits.gather(1, torch.tensor(answer)[:, None])[len(special.forced) :]
        scores.append(float(values.sum()) / rules.divisor(len(answer)))
    return bool(abs(scores[0] - scores[1]) < TIE)
