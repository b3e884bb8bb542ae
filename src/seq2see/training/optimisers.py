"""Adam (section 5.3), by PyTorch's function for it, and Muon.

``torch.optim.Adam`` computes the same numbers, but creating one imports PyTorch's compiler, which takes as long as
importing PyTorch itself.

Muon (Jordan et al., 2024): the matrices of the layers move by their momentum, made orthogonal; Adam moves the rest. A
gradient mostly points into the few directions that the model has learned already. Made orthogonal, it moves a matrix
equally far in all directions, so that rare ones are learned, too: fewer steps are needed. ``torch.optim.Muon`` computes
the same in bfloat16, one matrix after the other; here all matrices of one shape are one product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam

MOMENTUM, DECAY = 0.95, 0.1  # μ, and the weights' decay d: PyTorch's defaults
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan's polynomial: it raises small singular values fastest
ROUNDS = 3  # of the polynomial; with 5, as in Jordan's text, a step of a small model takes a tenth longer


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


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether Muon moves a parameter: a matrix of a layer. Embeddings, the output, biases and norms are Adam's."""
    return parameter.ndim == 2 and "layers." in name and not name.endswith("distances")


def orthogonal(matrices: Tensor) -> Tensor:
    """Return U·Vᵀ, nearly, for matrices U·S·Vᵀ (M, rows, columns), rows ≤ columns: X ← a·X + (b·X·Xᵀ + c·(X·Xᵀ)²)·X."""
    a, b, c = COEFFICIENTS
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


class Muon(Adam):
    """M ← μ·M + (1−μ)·G,  W ← (1 − d·r)·W − r·√max(1, rows / columns)·U·Vᵀ, where U·S·Vᵀ = μ·M + (1−μ)·G

    for the matrices of the layers; r is ``factor`` times the learning rate. Adam moves the other parameters.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        factor: float,
        learning_rate: float | Tensor,
        betas: tuple[float, float],
        epsilon: float,
        capturable: bool = False,
    ) -> None:
        self.factor = factor
        self.matrices = [weight for name, weight in parameters.items() if is_matrix(name, weight)]
        others = [weight for name, weight in parameters.items() if not is_matrix(name, weight)]
        super().__init__(others, learning_rate, betas, epsilon, capturable)

    @torch.no_grad()
    def step(self) -> None:
        """Change all parameters that have a gradient."""
        alike: dict[tuple[int, int], list[Tensor]] = {}
        for weight in self.matrices:
            if weight.grad is not None:
                alike.setdefault((min(weight.shape), max(weight.shape)), []).append(weight)
        for weights in alike.values():
            self._move(weights)
        super().step()

    def _move(self, weights: list[Tensor]) -> None:
        """Move matrices of one shape, or of its transpose."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if weight not in self.state:
                self.state[weight] = {"momentum": torch.zeros_like(weight)}
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        wide = torch.stack([one if _wide(one) else one.mT for one in ahead])  # (M, rows, columns)
        rate = self.factor * self.learning_rate
        for weight, move in zip(weights, orthogonal(wide).unbind(), strict=True):
            longer = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            weight.mul_(1 - DECAY * rate).sub_(rate * longer * (move if _wide(weight) else move.mT))

    def zero_grad(self) -> None:
        """Forget the gradients."""
        super().zero_grad()
        for weight in self.matrices:
            weight.grad = None


def _wide(matrix: Tensor) -> bool:
    return matrix.shape[0] <= matrix.shape[1]
