"""Says which code computes each box of the paper's Figure 1: file, line and text, read from the code itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from textwrap import dedent
from typing import Any

from seq2see.inspection.trace import record
from seq2see.kernels.layers import FreeEmbedding
from seq2see.model.attention import MultiHeadAttention, written_attention
from seq2see.model.decoder import Decoder
from seq2see.model.encoder import Encoder
from seq2see.model.masks import Mask
from seq2see.model.positions import Embedding, sinusoids
from seq2see.model.sublayers import AddNorm, FeedForward
from seq2see.model.transformer import Transformer
from seq2see.tokenizers.tokenizer import Tokenizer

#: For each box, the functions that compute it, each with a piece of the line that does the work.
CODE: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "tokens": [(Tokenizer.encode, "return")],
    "embedding": [(Embedding.forward, "embedded * self.scale")],
    "positions": [(sinusoids, "torch.sin("), (Embedding.forward, "scaled + positions")],
    "embedding.norm": [(FreeEmbedding.forward, "self.norm(x)")],
    "attention": [(written_attention, "masked.softmax("), (MultiHeadAttention.forward, "written_attention(")],
    "mask": [(Mask.allowed, "tril")],
    "post": [(AddNorm.forward, "x + self.dropout(sublayer(x))")],
    "pre": [(AddNorm.forward, '"normed", self.norm(x)')],
    "feed_forward": [(FeedForward.forward, "self.activation")],
    "encoder.norm": [(Encoder.forward, "self.norm(x)")],
    "decoder.norm": [(Decoder.forward, "self.norm(x)")],
    "linear": [(Transformer.decode, "self.output(x)")],
    "softmax": [(record, "softmax(-1)")],
}
LINES = 26  # the most lines of code shown


@cache
def code() -> dict[str, list[dict[str, Any]]]:
    """Return the places that compute each box (``src/seq2see/model/attention.py:82``) and the text around each line."""
    return {box: [_place(function, piece) for function, piece in places] for box, places in CODE.items()}


def _place(function: Callable[..., Any], piece: str) -> dict[str, Any]:
    lines, first = inspect.getsourcelines(function)
    text = "".join(lines)
    mark = text[: max(0, text.find(piece))].count("\n")  # a test checks that the piece is there
    path = function.__module__.replace(".", "/")
    top = 0 if len(lines) <= LINES else max(0, mark - LINES // 2)
    return {
        "name": function.__qualname__,
        "place": f"src/{path}.py:{first + mark}",
        "text": dedent("".join(lines[top : top + LINES])).rstrip(),
        "line": mark - top,  # the index of the marked line in the text
    }
