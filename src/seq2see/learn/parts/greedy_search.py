"""Part 10 of 11, greedy search: write one token after the other."""

from collections.abc import Callable

import torch
from torch import Tensor


def greedy_search(
    source: list[int],
    encode: Callable[[Tensor], Tensor],
    decode: Callable[[Tensor, Tensor], Tensor],
    start: int,
    end: int,
    longest: int,
) -> list[int]:
    """Write the likeliest next token until it is the end, or until there are ``longest`` tokens.

    source: the ids of the text
    encode(ids): a tensor of ids (S,) to the memory (S, D). Once is enough.
    decode(ids, memory): the ids so far (T,), which begin with ``start``, to logits (T, V): row t has a number for
    each token of the vocabulary that may come after ids[t], and the largest is that of the likeliest.
    Returns the ids that were written, without ``start`` and without ``end``.

    torch.tensor([3, 1]) makes a tensor of a list, and int(x.argmax()) is the place of the largest number of a row.
    """
    memory = encode(torch.tensor(source))
    ids = [start]
    while len(ids) <= longest:
        logits = decode(torch.tensor(ids), memory)
        best = int(logits[-1].argmax())
        if best == end:
            break
        ids.append(best)
    return ids[1:]
