"""Part 9 of 11, a layer of the decoder: look back, look at the source, then feed-forward."""

from collections.abc import Callable

from torch import Tensor

Function = Callable[[Tensor], Tensor]
Attend = Callable[[Tensor, Tensor], Tensor]


def decoder_layer(
    x: Tensor,
    memory: Tensor,
    attend: Attend,
    attend_across: Attend,
    feed_forward: Function,
    norm_1: Function,
    norm_2: Function,
    norm_3: Function,
) -> Tensor:
    """Run the right block of Figure 1 once (section 3.1).

        LayerNorm(x + Sublayer(x)) around masked self-attention, cross-attention and feed-forward, in this order

    x: (…, T, D), the target so far; memory: (…, S, D), what the encoder has made of the source
    attend(x, source): masked attention of x on itself; its mask is inside
    attend_across(x, source): attention of x on the memory
    feed_forward(x), norm_1(x), norm_2(x), norm_3(x): functions that have their weights already
    Returns (…, T, D).
    """
    x = norm_1(x + attend(x, x))
    x = norm_2(x + attend_across(x, memory))
    return norm_3(x + feed_forward(x))
