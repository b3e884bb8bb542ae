"""Part 5 of 11, heads: several attentions beside each other."""

from collections.abc import Callable

from torch import Tensor

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def multi_head(
    x: Tensor, source: Tensor, mask: Tensor | None, w: dict[str, Tensor], heads: int, attention: Attention
) -> Tensor:
    """Look with each head in a way of its own, and put together what the heads have found (section 3.2.2).

        MultiHead = Concat(head_1, …, head_h)·W^O       head_i = Attention(x·W_i^Q, source·W_i^K, source·W_i^V)

    x: (…, T, D), the positions that look; source: (…, S, D), those that are looked at (it may be x itself)
    mask: for the attention, as it is
    w: the matrices w["q"], w["k"], w["v"] of (D, heads·d_k) and w["o"] of (heads·d_k, D), and the biases
    w["b_q"], w["b_k"], w["b_v"], w["b_o"], which are added after each product (the paper's equation has none)
    attention: a function of q (…, heads, T, d_k), k and v (…, heads, S, d_k) and the mask, to (…, heads, T, d_k)
    Returns (…, T, D).

    Columns 0 to d_k − 1 of x·W^Q are the first head's, the next d_k the second's. x.unflatten(-1, (heads, -1)) cuts
    the last dimension in two, and x.flatten(-2) joins the last two again.
    """

    def cut(y: Tensor) -> Tensor:
        return y.unflatten(-1, (heads, -1)).transpose(-3, -2)

    q = cut(x @ w["q"] + w["b_q"])
    k = cut(source @ w["k"] + w["b_k"])
    v = cut(source @ w["v"] + w["b_v"])
    z = attention(q, k, v, mask)
    return z.transpose(-3, -2).flatten(-2) @ w["o"] + w["b_o"]
