"""The card of a trained model: what it is, how good it is, how to repeat both."""

from __future__ import annotations

from seq2see.config import Config
from seq2see.data.plan import are_sentences
from seq2see.evaluate import Evaluation


def model_card(
    config: Config,
    parameters: int,
    pairs: int,
    scores: Evaluation,
    seconds: float,
    command: str,
    extra: str = "",
) -> str:
    """Write the card from measured figures."""
    shape = config.model
    lines = [
        f"# {config.task}",
        "",
        f"A Transformer encoder-decoder made by seq2see: {parameters:,} parameters, d_model {shape.d_model}, "
        f"{shape.heads} heads, d_ff {shape.d_ff}, {shape.encoder_layers}+{shape.decoder_layers} layers, "
        f"{shape.norm}-norm.",
        "",
        "| measured on held-out pairs | |",
        "|---|---|",
        f"| pairs | {scores.pairs:,} |",
        f"| exact match, free-running | {scores.exact_match:.2%} |",
        f"| character error rate | {scores.character_error_rate:.4%} |",
        *_translation_scores(scores),
        f"| loss, teacher-forced (nats a token) | {scores.loss:.3g} |",
        f"| trained on | {pairs:,} pairs, {config.training.steps:,} steps, {seconds:.0f} s |",
        "",
        "Made by:",
        "",
        f"    {command}",
        "",
    ]
    return "\n".join(lines) + extra


def _translation_scores(scores: Evaluation) -> list[str]:
    """Write BLEU and chrF with their signatures, where the pairs are sentences."""
    if not scores.answers or not are_sentences(
        [(source, expected) for source, expected, _ in scores.answers]
    ):
        return []
    return [
        f"| {found.signature.replace('|', ' ')} | {found.score:.2f} |"
        for found in (scores.bleu(), scores.chrf())
    ]
