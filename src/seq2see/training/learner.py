"""One step of learning: forward, loss, backward, Adam (sections 5.3 and 5.4)."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig, TrainingConfig
from seq2see.data.batching import Batch, PackedBatch
from seq2see.devices import is_full
from seq2see.kernels.ensemble import Ensemble, averaged, reads_backward
from seq2see.kernels.layers import FastAttention, FastTransformer, alignment_loss
from seq2see.kernels.operators import SMALL, mark_cache, preload, summed_loss
from seq2see.kernels.registry import with_kernels
from seq2see.kernels.shared import PackedMasks
from seq2see.machine import uncollected
from seq2see.model.decoder import DecoderLayer
from seq2see.model.masks import EVERYTHING
from seq2see.model.transformer import Transformer
from seq2see.training import distributed
from seq2see.training.optimisers import Adam, Muon

FEW_LOGITS = 2048  # largest target vocabulary for which a small model's loss needs no kernel of ours
KEPT = ("step", "exp_avg", "exp_avg_sq", "momentum")  # what an optimiser keeps of a parameter
WARM_STEPS = 3  # before a step is captured: kernels are compiled and buffers allocated
#: Operations of a training, or its seconds, from which compiling pays: it takes about 24 s on an H200, and a step of the
#: base model is a seventh faster. 4e16 operations take two minutes there.
WORTH_COMPILING, SECONDS_WORTH_COMPILING = 4e16, 180


def members_of(model: Transformer) -> list[Transformer]:
    """Return the members of an ensemble, or the model itself."""
    return model.all if isinstance(model, Ensemble) else [model]


def guided_in(model: Transformer, settings: TrainingConfig) -> FastAttention | None:
    """Mark the cross-attention whose first head is guided, if any: that of the second layer."""
    if not settings.guided:
        return None
    layer = model.decoder.layers[min(1, len(model.decoder.layers) - 1)]
    assert isinstance(layer, DecoderLayer)
    attention = layer.cross_attention
    assert isinstance(attention, FastAttention)
    attention.guided = True
    return attention


class Objective(nn.Module):
    """The loss: cross-entropy with label smoothing (section 5.4), and R-Drop's divergence if it is set.

    ``guided`` adds the loss of a head that should attend to the source token of each target token, and ``guided_memory``
    that of the memory, which should tell the target tokens of each source token. With a teacher, part of the loss is the
    cross-entropy with the teacher's probabilities (Hinton et al., 2015).
    """

    def __init__(self, model: Transformer, settings: TrainingConfig, pad: int, written: bool = False) -> None:
        super().__init__()
        self.model, self.settings, self.pad, self.written = model, settings, pad, written
        self.guided = guided_in(model, settings)

    def forward(
        self, batch: Batch | PackedBatch, masks: PackedMasks | None, tokens: Tensor, taught: Tensor | None = None
    ) -> Tensor:
        """Return the summed loss of the batch's real tokens, divided by ``tokens``, the real tokens of the whole step.

        ``taught`` (T, V) are the teacher's log-probabilities.
        """
        memory, logits = memory_and_logits(self.model, batch, masks)
        loss = self.summed(logits, batch.target_out.flatten(), taught)
        if self.guided is not None and self.guided.asked is not None:
            asked, self.guided.asked = self.guided.asked, None  # a model with these tensors cannot be copied
            mask = batch.source_mask if isinstance(batch, Batch) else masks.cross if masks else EVERYTHING
            if batch.places is not None:
                loss = loss + self.settings.guided * alignment_loss(*asked, mask, batch.places)
        if self.settings.guided_memory and batch.places is not None:
            loss = loss + self.settings.guided_memory * self._foretold(memory, batch.places, batch.target_out)
        return loss / tokens

    def _foretold(self, memory: Tensor, places: Tensor, right: Tensor) -> Tensor:
        """Return the summed loss of what memory (…, S, D) says at ``places`` (…, T) about the right tokens (…, T)."""
        at = places.clamp(min=0)[..., None].expand(*places.shape, memory.shape[-1])
        logits = self.model.output(memory.gather(-2, at)).flatten(0, -2)  # (T, V)
        known = right.masked_fill(places < 0, self.pad).flatten()
        return summed_loss(logits, known, self.pad, self.settings.label_smoothing, self.written)

    def summed(self, logits: Tensor, right: Tensor, taught: Tensor | None = None) -> Tensor:
        """Return the sum of the losses of logits (T, V) for the right tokens (T,)."""
        loss = summed_loss(logits, right, self.pad, self.settings.label_smoothing, self.written)
        if taught is not None:
            each = -(taught.exp() * logits.float().log_softmax(-1)).sum(-1)  # (T,)
            soft = each.masked_fill(right == self.pad, 0.0).sum()
            loss = (1 - self.settings.taught) * loss + self.settings.taught * soft
        if self.settings.r_drop:
            loss = loss + self.settings.r_drop / 2 * self._divergence(logits, right)
        return loss

    def _divergence(self, logits: Tensor, right: Tensor) -> Tensor:
        """Return the sum of ½·(KL(p₁‖p₂) + KL(p₂‖p₁)) for a batch that was read twice (Liang et al., 2021, eq. 3)."""
        one, two = logits.float().log_softmax(-1).chunk(2)  # (T, V) each
        each = ((one.exp() - two.exp()) * (one - two)).sum(-1) / 2  # (T,)
        # The factor 2 gives it the weight of the tokens of both passes.
        return each.masked_fill(right.chunk(2)[0] == self.pad, 0.0).sum() * 2


def memory_and_logits(
    model: Transformer, batch: Batch | PackedBatch, masks: PackedMasks | None
) -> tuple[Tensor, Tensor]:
    """Return the memory of a batch, (S, D) if it is packed, else (B, S, D), and the logits of all positions, (T, V)."""
    if isinstance(batch, PackedBatch):
        assert masks is not None
        assert isinstance(model, FastTransformer)
        memory = model.encode(batch.source, masks.source, masks.source_place)
        return memory, model.decode(batch.target_in, memory, masks.cross, None, masks.target, masks.target_place)
    memory = model.encode(batch.source, batch.source_mask)
    return memory, model.decode(batch.target_in, memory, batch.source_mask).flatten(0, 1)


def compiling_pays(model: ModelConfig, settings: TrainingConfig) -> bool:
    """Whether a model is large enough, and its training long enough, to be compiled."""
    if model.d_model <= SMALL:
        return False
    if settings.budget is not None:
        return settings.budget >= SECONDS_WORTH_COMPILING
    tokens = settings.steps * settings.batch_tokens * settings.accumulate * (2 if settings.r_drop else 1)
    return 6 * model.parameters * tokens >= WORTH_COMPILING


class Learner:
    """A model with its optimiser.

    In bfloat16 a copy of the model computes, and the model itself keeps the weights in float32, because a small update
    would be lost in bfloat16. On a GPU all packed batches have one shape: the parts of the step are compiled, and then
    it is captured as a CUDA graph, so that the host has little to do. Under torchrun the processes share the batches of
    a step (``distributed``), and it is not captured.

    The members of an ensemble learn from the same batches, each by its own loss, on a GPU beside each other. A
    ``teacher`` reads each batch, too.
    """

    def __init__(
        self, model: Transformer, settings: TrainingConfig, pad: int, teacher: Transformer | None = None
    ) -> None:
        self.model, self.settings, self.pad = with_kernels(model), settings, pad
        self.device = next(model.parameters()).device
        packed = self.device.type == "cuda" and settings.layout == "packed"
        several = isinstance(model, Ensemble)
        compiles = self.compiles = packed and not several and compiling_pays(model.config, settings)
        self.copies = settings.precision == "bfloat16"
        self.worker = model
        if self.copies:
            self.worker = copy.deepcopy(model).bfloat16()
        elif compiles:
            # other modules with the same weights, so that the model's own stay uncompiled
            self.worker = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
        self.captures = packed and distributed.size() == 1
        #: the kernels of a packed step, built in the background
        self.built = (
            preload(model.config, settings.label_smoothing, pad, next(self.worker.parameters()).dtype, self.device)
            if packed
            else None
        )
        few = model.config.d_model <= SMALL and model.config.target_vocabulary <= FEW_LOGITS
        self.losses = [
            self._spread(Objective(member, settings, pad, few), compiles) for member in members_of(self.worker)
        ]
        self.backward = [reads_backward(member) for member in members_of(self.worker)]
        self.teacher = None
        if teacher is not None:
            self.teacher = with_kernels(teacher).to(self.device).eval()
            if self.copies:
                self.teacher = copy.deepcopy(teacher).bfloat16()
        self.learning_rate = torch.zeros((), device=self.device)
        self.trained = dict(model.named_parameters())
        self.optimiser = self._optimiser()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0  # steps by graph so far
        self.stream = torch.cuda.Stream(self.device) if self.captures else None  # type: ignore[no-untyped-call]
        #: one for each member of an ensemble or a teacher: five beside each other take 0.75 times as long as in turn
        self.side_streams = [
            torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            for _ in range(max(len(self.losses), len(self._teachers())) if self.captures else 0)
        ]

    def _optimiser(self) -> Adam:
        settings, rate = self.settings, self.learning_rate if self.captures else 0.0
        betas = (settings.beta1, settings.beta2)
        if settings.muon:
            return Muon(self.trained, settings.muon, rate, betas, settings.epsilon, self.captures)
        return Adam(self.trained.values(), rate, betas, settings.epsilon, self.captures)

    def _spread(self, objective: Objective, compiles: bool) -> Callable[..., Tensor]:
        """Compile the objective if that pays, and divide the work among the processes."""
        compiled = partial(torch.compile, fullgraph=True, dynamic=False)
        encoder, decoder = objective.model.encoder, objective.model.decoder
        if compiles:
            mark_cache()
            # all layers share one compiled function
            for part in [encoder.embedding, decoder.embedding, *encoder.layers, *decoder.layers]:
                part.forward = compiled(part.forward)
            objective.summed = compiled(objective.summed)  # type: ignore[method-assign]
        return distributed.averaging(objective)

    def learn(self, batches: Sequence[Batch | PackedBatch], learning_rate: float) -> Tensor:
        """Take one step on some batches; return its loss on the device, so that the host does not wait."""
        if not self.worker.training:
            self.worker.train()  # it visits all modules, which takes as long as a step of a small model
        if self.captures:
            return self._learn_by_graph([b for b in batches if isinstance(b, PackedBatch)], learning_rate)
        self.optimiser.learning_rate = learning_rate
        return self._step([batch.to(self.device) for batch in batches])

    def try_out(self, batches: Sequence[Batch | PackedBatch]) -> None:
        """Compute the gradients of some batches, with memory for the optimiser, and change nothing.

        If the GPU's memory is too small, the error comes here, before the training.
        """
        self.worker.train()
        on_gpu = self.device.type == "cuda"
        try:
            with torch.random.fork_rng([self.device] if on_gpu else []), self._aside():
                moments = [
                    torch.empty_like(weight)
                    for weight in self.trained.values()
                    if weight not in self.optimiser.state
                    for _ in range(2)
                ]
                self._learned([batch.to(self.device) for batch in batches])
                del moments
        finally:
            self._without_gradients()

    def seconds_of(self, batches_of: Callable[[int], Sequence[Batch | PackedBatch]], count: int) -> float:
        """Return the seconds of a step, by ``count`` of them that change nothing: their rate is zero."""
        unmeasured = WARM_STEPS + 2 if self.captures else 1  # kernels are built, and the step is captured
        started = 0.0
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            for number in range(unmeasured + count):
                if number == unmeasured:
                    started = self._now()
                self.learn(batches_of(number), 0.0)
            took = self._now() - started
        for moments in self.optimiser.state.values():
            for value in moments.values():
                value.zero_()
        return took / count

    def _now(self) -> float:
        """Return the time, after all that the device was given to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _without_gradients(self) -> None:
        for weight in (*self.worker.parameters(), *self.trained.values()):
            weight.grad = None

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Work on a separate stream, if steps are to be captured: a capture must not include other work."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)

    def _teachers(self) -> list[Transformer]:
        """Return the teacher's members that write from left to right, as its pupil does."""
        return [] if self.teacher is None else [one for one in members_of(self.teacher) if not reads_backward(one)]

    @contextmanager
    def _side_by_side(self, count: int) -> Iterator[Callable[[int], AbstractContextManager[object]]]:
        """Return a function of a member's number, whose context puts that member's work beside that of the others.

        On a GPU each member has its own stream; all are joined at the end, also after an error: a capture that ends with
        open streams would hide that the memory is full.
        """
        streams = self.side_streams[:count] if count > 1 else []
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        try:
            yield lambda number: torch.cuda.stream(streams[number]) if streams else nullcontext()
        finally:
            for stream in streams:
                torch.cuda.current_stream().wait_stream(stream)

    def _step(self, batches: Sequence[Batch | PackedBatch]) -> Tensor:
        total = self._learned(batches)
        self._gradients_to_model()
        if self.settings.clip:
            members = members_of(self.model)
            with self._side_by_side(len(members)) as beside:
                for number, member in enumerate(members):
                    with beside(number):
                        torch.nn.utils.clip_grad_norm_(member.parameters(), self.settings.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.weights_to_worker()
        return distributed.mean(total)

    def _learned(self, batches: Sequence[Batch | PackedBatch]) -> Tensor:
        """Return the loss of some batches, and leave its gradients in the worker."""
        if not self.compiles:
            self._await_kernels()
        answers = [self._taught(batch) for batch in batches]
        if self.settings.r_drop:
            batches = [batch.twice() for batch in batches]
        tokens = distributed.mean(torch.stack([(batch.target_out != self.pad).sum() for batch in batches]).sum())
        total = torch.zeros((), device=self.device)
        for batch, taught in zip(batches, answers, strict=True):
            masks = batch.masks() if isinstance(batch, PackedBatch) else None
            turned = self._turned(batch) if any(self.backward) else batch
            found = []
            with self._side_by_side(len(self.losses)) as beside:
                for number, loss_of in enumerate(self.losses):
                    # gradients are exchanged once a step
                    distributed.exchange(loss_of, now=batch is batches[-1])
                    with beside(number):
                        read = turned if self.backward[number] else batch
                        loss = loss_of(read, masks, tokens, taught)
                        loss.backward()  # type: ignore[no-untyped-call]
                        found.append(loss.detach())
            total = total + torch.stack(found).mean()
        self._await_kernels()  # a capture must not include them
        return total

    def _turned(self, batch: Batch | PackedBatch) -> Batch | PackedBatch:
        """Return a batch from right to left; a packed one has the same masks."""
        return batch.turned() if isinstance(batch, PackedBatch) else batch.turned(self.pad)

    def _await_kernels(self) -> None:
        built, self.built = self.built, None
        if built is not None:
            wait([built])  # a failure is reported by the step

    @torch.no_grad()
    def _taught(self, batch: Batch | PackedBatch) -> Tensor | None:
        """Return the teacher's log-probabilities, (T, V), or (2·T, V) if the pupil reads the batch twice.

        The teacher has no dropout, so it reads a batch once.
        """
        if self.teacher is None:
            return None
        masks = batch.masks() if isinstance(batch, PackedBatch) else None
        logits, teachers = [], self._teachers()
        with self._side_by_side(len(teachers)) as beside:
            for number, teacher in enumerate(teachers):
                with beside(number):
                    logits.append(memory_and_logits(teacher, batch, masks)[1])
        found = averaged(logits)
        return found.repeat(2, 1) if self.settings.r_drop else found

    def _learn_by_graph(self, batches: Sequence[PackedBatch], learning_rate: float) -> Tensor:
        """Take the first steps on a separate stream, then record one step as a graph, and replay it from then on."""
        if self.warm == 0:
            self.slots = [torch.empty_like(batch.rows, device=self.device) for batch in batches]
        for slot, batch in zip(self.slots, batches, strict=True):
            slot.copy_(batch.rows.pin_memory(), non_blocking=True)
        here = [PackedBatch(slot, batch.size, batch.tokens) for slot, batch in zip(self.slots, batches, strict=True)]
        self.learning_rate.fill_(learning_rate)
        self.warm += 1
        if self.warm == WARM_STEPS + 1:
            self.graph = self._graph(here)
        if self.graph is None:
            with self._aside():
                return self._step(here)
        self.graph.replay()
        return self.captured_loss.clone()

    def _graph(self, batches: Sequence[PackedBatch]) -> torch.cuda.CUDAGraph | None:
        """Record a step without taking it; None if there is no memory for the graph."""
        graph = torch.cuda.CUDAGraph()
        try:
            with uncollected(), torch.cuda.graph(graph):  # no other graph may be freed meanwhile
                self.captured_loss = self._step(batches)
        except RuntimeError as error:
            if not is_full(error):
                raise
            self._without_gradients()
            return None
        return graph

    def _gradients_to_model(self) -> None:
        if self.copies:
            theirs = [p.grad for p in self.worker.parameters() if p.grad is not None]
            ours = [torch.empty_like(p) for p in self.model.parameters()]
            torch._foreach_copy_(ours, theirs)
            for parameter, gradient in zip(self.model.parameters(), ours, strict=True):
                parameter.grad = gradient
            self.worker.zero_grad()

    def weights_to_worker(self) -> None:
        """Copy the model's weights to the worker, after they have changed."""
        if self.copies:
            with torch.no_grad():
                torch._foreach_copy_(list(self.worker.parameters()), list(self.model.parameters()))

    def weights(self) -> dict[str, Tensor]:
        """Return copies of the weights by name on the CPU, in the first process only."""
        return distributed.gathered(dict(self.model.named_parameters()))

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's moments and the random state, by name."""
        state = {"random": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["random-cuda"] = torch.cuda.get_rng_state(self.device)
        elif self.device.type == "mps":
            state["random-mps"] = torch.mps.get_rng_state()
        for name, parameter in self.trained.items():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                state[f"{key}/{name}"] = value
        return state

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; the model has its weights already."""
        for name, leaf in self.trained.items():
            kept = {key: state[f"{key}/{name}"] for key in KEPT if f"{key}/{name}" in state}
            if kept:
                self.optimiser.state[leaf] = {key: value.to(self.device) for key, value in kept.items()}
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random-cuda"], self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(state["random-mps"])
        self.weights_to_worker()
