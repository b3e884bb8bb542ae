"""One step of learning: forward, loss, backward, Adam (sections 5.3 and 5.4)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2see.config import TrainingConfig
from seq2see.data.batching import Batch
from seq2see.data.packing import BLOCK, SMALL_BLOCK, PackedBatch
from seq2see.model.attention import PackedMasks
from seq2see.model.transformer import Transformer

#: Matrix products stay the library's; what is tried out are FlexAttention's tiles and the fused kernels' shapes.
TUNED: dict[str, str | int | bool | Callable[..., Any]] = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "ATEN",
    "coordinate_descent_tuning": True,
    "online_softmax": False,
}
WARM_STEPS = 3  # taken before a step is captured: kernels compile, buffers settle


class Learner:
    """A model with its optimiser.

    In bfloat16 a copy of the model does the arithmetic, and the model itself keeps the weights in float32, which
    small steps need. On a GPU, packed batches have one shape for good: the step is compiled, then captured as a
    CUDA graph, so that the host has next to nothing to do.
    """

    def __init__(self, model: Transformer, settings: TrainingConfig, pad: int) -> None:
        self.model, self.settings, self.pad = model, settings, pad
        self.worker = copy.deepcopy(model).bfloat16() if settings.precision == "bfloat16" else model
        self.device = next(model.parameters()).device
        self.captures = self.device.type == "cuda" and settings.layout == "packed"
        self.learning_rate = torch.zeros((), device=self.device)
        self.optimiser = torch.optim.Adam(
            model.parameters(),
            lr=self.learning_rate if self.captures else 0.0,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,
            capturable=self.captures,
        )
        self.loss = self._loss
        if self.captures:
            options = TUNED if settings.tuned else None
            self.loss = torch.compile(self._loss, fullgraph=True, dynamic=False, options=options)
        self.block = SMALL_BLOCK if settings.tuned else BLOCK
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0

    def _loss(self, batch: Batch | PackedBatch, masks: PackedMasks | None = None) -> Tensor:
        """Return the mean cross-entropy of the batch's real tokens, smoothed as in section 5.4."""
        if isinstance(batch, PackedBatch):
            logits = self.worker.forward_packed(
                batch.source, batch.target_in, masks or batch.masks()
            )  # (T, V)
        else:
            logits = self.worker(batch.source, batch.target_in, batch.source_mask).flatten(0, 1)  # (B·T, V)
        return F.cross_entropy(
            logits.float(),
            batch.target_out.flatten(),
            ignore_index=self.pad,
            label_smoothing=self.settings.label_smoothing,
        )

    def learn(self, batch: Batch | PackedBatch, learning_rate: float) -> Tensor:
        """Take one step; return its loss, still on the device, so that nobody has to wait for it."""
        self.worker.train()
        if self.captures and isinstance(batch, PackedBatch):
            return self._learn_by_graph(batch, learning_rate)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate
        return self._step(batch)

    def _step(self, batch: Batch | PackedBatch) -> Tensor:
        loss = self.loss(batch, batch.masks(self.block) if isinstance(batch, PackedBatch) else None)
        loss.backward()  # type: ignore[no-untyped-call]
        self._gradients_to_model()
        if self.settings.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.weights_to_worker()
        return loss.detach()

    def _learn_by_graph(self, batch: PackedBatch, learning_rate: float) -> Tensor:
        """Take the first steps as they are, on a stream of their own; then record one, and from then on replay it."""
        if self.warm == 0:
            self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            self.slot = torch.empty_like(batch.rows, device=self.device)
        self.slot.copy_(batch.rows.pin_memory(), non_blocking=True)
        self.learning_rate.fill_(learning_rate)
        if self.warm < WARM_STEPS:
            self.warm += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self._step(PackedBatch(self.slot, batch.tokens))
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.captured_loss = self._step(PackedBatch(self.slot, batch.tokens))
        self.graph.replay()
        return self.captured_loss.clone()

    def _gradients_to_model(self) -> None:
        if self.worker is not self.model:
            theirs = [p.grad for p in self.worker.parameters() if p.grad is not None]
            ours = [torch.empty_like(p) for p in self.model.parameters()]
            torch._foreach_copy_(ours, theirs)
            for parameter, gradient in zip(self.model.parameters(), ours, strict=True):
                parameter.grad = gradient
            self.worker.zero_grad()

    def weights_to_worker(self) -> None:
        """Let the arithmetic go on with the model's weights, after they have changed."""
        if self.worker is not self.model:
            with torch.no_grad():
                torch._foreach_copy_(list(self.worker.parameters()), list(self.model.parameters()))

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's moments and the random state, by name."""
        state = {"random": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["random-cuda"] = torch.cuda.get_rng_state(self.device)
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state[parameter].items():
                state[f"{key}/{name}"] = value
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned; the model's weights have been put back before."""
        for name, parameter in self.model.named_parameters():
            self.optimiser.state[parameter] = {
                key: state[f"{key}/{name}"].to(self.device) for key in ("step", "exp_avg", "exp_avg_sq")
            }
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random-cuda"], self.device)
        self.weights_to_worker()
