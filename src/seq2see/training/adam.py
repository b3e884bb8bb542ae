"""Adam (section 5.3), by PyTorch's function for it.

``torch.optim.Adam`` computes the same numbers, but creating one imports PyTorch's compiler, which takes as long as
importing PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """m ← β₁·m + (1−β₁)·g,  v ← β₂·v + (1−β₂)·g²,  θ ← θ − lr·m̂ / (√v̂ + ε)

    ``learning_rate`` may be set before each step; as a tensor it can change in a captured graph.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        learning_rate: float | Tensor,
        betas: tuple[float, float],
        epsilon: float,
        capturable: bool = False,
    ) -> None:
        self.parameters, self.learning_rate = [*parameters], learning_rate
        self.betas, self.epsilon, self.capturable = betas, epsilon, capturable
        #: the number of steps, m and v of each parameter, once it has had a gradient
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Change all parameters that have a gradient."""
        learned = [parameter for parameter in self.parameters if parameter.grad is not None]
        if not learned:
            return
        device = learned[0].device
        for parameter in learned:
            if parameter not in self.state:
                self.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=device),
                    "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                }
        steps, means, squares = (
            [self.state[parameter][name] for parameter in learned] for name in ("step", "exp_avg", "exp_avg_sq")
        )
        fused = device.type in ("cpu", "cuda")
        adam(
            learned, [parameter.grad for parameter in learned if parameter.grad is not None], means, squares, [],
            steps, foreach=not fused, fused=fused, capturable=self.capturable, amsgrad=False, beta1=self.betas[0],
            beta2=self.betas[1], lr=self.learning_rate, weight_decay=0.0, eps=self.epsilon, maximize=False,
        )  # fmt: skip

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None
