"""Part 8 of 11, a layer of the encoder: attention, then feed-forward, each with Add & Norm."""

from collections.abc import Callable

from torch import Tensor

Function = Callable[[Tensor], Tensor]


def encoder_layer(
    x: Tensor, attend: Callable[[Tensor, Tensor], Tensor], feed_forward: Function, norm_1: Function, norm_2: Function
) -> Tensor:
    """Run the left block of Figure 1 once (section 3.1).

        LayerNorm(x + Sublayer(x)) around attention, and then around feed-forward

    x: (…, S, D)
    attend(x, source): lets x look at the source. In an encoder x looks at itself.
    feed_forward(x), norm_1(x), norm_2(x): functions that have their weights already. norm_1 comes after attention.
    Returns (…, S, D).
    """
    x = norm_1(x + attend(x, x))
    return norm_2(x + feed_forward(x))
