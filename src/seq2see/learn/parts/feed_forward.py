"""Part 7 of 11, feed-forward: the same small network at every position."""

from torch import Tensor


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
    """Widen each position, set what is negative to 0, and narrow it again (section 3.3, equation 2).

        FFN(x) = max(0, x·W_1 + b_1)·W_2 + b_2

    x: (…, D); w_1: (D, F); b_1: (F,); w_2: (F, D); b_2: (D,)
    Returns (…, D).
    """
    hidden = (x @ w_1 + b_1).clamp(min=0)
    return hidden @ w_2 + b_2
