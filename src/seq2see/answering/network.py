"""The weights of a model and what computes with them: the network, an export of it, and the engine for each request.

Answering through CTranslate2 needs no torch, and importing torch takes longer than answering. So the methods that need
torch import their modules when they are called.
"""

from __future__ import annotations

import logging
import platform
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seq2see import devices, machine
from seq2see.config import Config, DecodingConfig
from seq2see.decoding import engines
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import PAPER, Special
from seq2see.errors import EightBitsError, UserError, installed
from seq2see.files import cache_folder
from seq2see.stopping import wanted
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from torch import Tensor

    from seq2see.decoding.torch_engine import TorchEngine
    from seq2see.model.transformer import Transformer

T = TypeVar("T")

OF_TORCH = ("torch", "written")  # engines that compute with the network itself
BATCH_NUMBERS = 2**18  # inputs × d_model decoded together: a small model needs many rows for a step to pay
LARGEST_BATCH = 16384
BATCHES_OF_A_GPU = 2 * machine.AT_ONCE  # at a time: two are searched, the others are laid out or put together
WINDOW = 8192  # inputs in memory at a time, sorted by length
#: The same on a GPU, which answers hundreds together: of more inputs, those that are answered together differ less in
#: length (benchmarks/README.md has the figures).
WINDOW_OF_A_GPU = 4 * WINDOW
#: The same for a large model on a CPU, from ``d_model`` LARGE on: its answers are on the disk, where --resume finds them,
#: and on the progress bar after half a minute. 1,536 news took 7 % more CPU time by 512.
SHORT, LARGE = 2048, 256
HELD = 2**24  # characters of inputs in memory at a time
LARGE_ROW = 512  # a d_model from which torch is the faster one for a single input on ARM
WORTH_EXPORT = 2**27  # parameters × inputs from which a model without an export gets one in the user's cache
#: Parameters from which even one input is worth an export: the next start is faster by seconds.
ALWAYS_EXPORTED = 2**23
#: Random inputs on which such an export is compared with torch, and tokens of each answer.
CHECKED, CHECKED_TOKENS = 4, 24

#: Rules that make other tokens likelier in its beams, since it removes the probability of excluded tokens.
MADE_LIKELIER: dict[str, Any] = {"suppressed": (), "no_repeat": 0, "min_length": 0, "other_ends": ()}


class Network:
    """A Transformer that is read from its folder when it is needed, and the engines that search with its weights."""

    def __init__(
        self,
        config: Config,
        tokenizers: Tokenizers,
        transformer: Transformer | None = None,
        path: Path | None = None,
        device: str = "cpu",
        engine: str = "auto",
    ) -> None:
        assert transformer is not None or path is not None
        self.config, self.tokenizers, self.path = config, tokenizers, path
        self.engine = engines.known(engine)
        self.device = device
        self.export: Path | None = None  # the CTranslate2 export of these weights
        self._tried_export = False  # whether writing one was tried
        self._transformer = transformer if transformer is None else self._of_the_engine(transformer)
        self._as_read: object = None  # its fingerprint before a caller got it
        self._ctranslate2: Engine | None = None
        self._torch: TorchEngine | None = None
        self._pool: ThreadPoolExecutor | None = None  # searches on a GPU, in the order in which they come

    def find_export(self) -> None:
        """Look for an export of these weights; without one the weights are read at once."""
        assert self.path is not None
        if (several := self.config.model.members) > 1 and self.engine in ("int8", "ctranslate2"):
            raise UserError(
                f"`engine` is {self.engine}, but {self.path.name} is an ensemble of {several} models, which only torch "
                f"answers with: leave it out, or teach one model by it (`seq2see train FILE --teacher {self.path.name}`)."
            )
        if self.engine in ("int8", "ctranslate2"):
            self._require("int8" if self.engine == "int8" else "float32")
        elif self.engine == "auto" and self.device == "cpu":
            self.export = engines.ready_export(self.path, self.config.model)
        if self.export is None and has_torch():
            self.inner()

    @property
    def on_gpu(self) -> bool:
        """Whether an NVIDIA GPU computes."""
        return self.device.startswith("cuda")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the engines: they cannot be copied or sent to another process, and are made again when needed."""
        return {**self.__dict__, "_ctranslate2": None, "_torch": None, "_pool": None}

    def inner(self) -> Transformer:
        """Return the network for computing; callers must not hand it out."""
        if self._transformer is None:
            installed("torch", "What CTranslate2 does not search for")
            from seq2see.storage.weights import read_model

            assert self.path is not None
            read = read_model(self.config.model, folder.weights_path(self.path), self.device)
            self._transformer = self._of_the_engine(read)
        return self._transformer

    def _of_the_engine(self, network: Transformer) -> Transformer:
        """Let the kernels compute what a network computes, or what stands in ``model/``."""
        from seq2see.kernels.registry import with_kernels, without_kernels

        return without_kernels(network) if self.engine == "written" else with_kernels(network)

    def editable(self) -> Transformer:
        """Return the network for a caller who may edit it."""
        network = self.inner()
        if self.path is not None and self._as_read is None:
            self._as_read = _fingerprint(network)
        return network

    def is_edited(self) -> bool:
        """Whether the network is no longer what it was when it was read from its folder."""
        return self._as_read is not None and self._as_read != _fingerprint(self.inner())

    def to(self, device: str) -> None:
        """Move the weights to a device."""
        device = devices.choose(device, devices.lasting(self.config.model), devices.found).device
        edited = self.is_edited()
        self.device = device
        if self._transformer is not None:
            from seq2see.storage.weights import placed

            placed(self._transformer, device)
            if self._as_read is not None and not edited:
                self._as_read = _fingerprint(self._transformer)

    # --- the engine of a request ---

    def engine_for(self, inputs: int, beam: int = 1, n_best: int = 1, constrained: bool = False) -> Engine:
        """Return the engine for this number of inputs, chosen by the weights, the device and the request.

        The choice does not change an answer. ``constrained`` says that only some answers are allowed.
        """
        obstacle = cannot(beam, n_best, self.config.model.target_vocabulary, constrained, self.config.decoding)
        if self.config.model.positions == "relative":
            obstacle = "it does not support relative positions"
        if self.device != "cpu":
            obstacle = f"it answers on the cpu, not on {self.device}"
        elif self.engine not in OF_TORCH and self.is_edited():
            obstacle = "the network was edited since it was exported"
        if self.engine == "ctranslate2" and obstacle:
            raise UserError(f"CTranslate2 cannot answer this ({obstacle}): use the engine auto or torch.")
        if self.engine == "auto" and not obstacle and self.export is None:
            self._keep_export(inputs)
        if self.engine in OF_TORCH or obstacle or self.export is None:
            return self._through_torch()
        if inputs == 1 and self._row_through_torch(beam):
            return self._through_torch()
        return self._through_ctranslate2(inputs)

    def batches(
        self, lengths: dict[int, int], rules: DecodingConfig, n_best: int, constrained: bool = False
    ) -> Iterator[tuple[Engine, list[int]]]:
        """Yield each engine with the inputs that it answers together; ``lengths`` has the number of tokens of
        each input.
        """
        if not lengths:
            return
        engine = self.engine_for(len(lengths), rules.beam, n_best, constrained)
        good = sorted(lengths, key=lengths.__getitem__)  # neighbours of one length need no padding
        size = min(LARGEST_BATCH, max(1, BATCH_NUMBERS // (self.config.model.d_model * rules.beam)))
        for first in range(0, len(good), size):
            yield engine, good[first : first + size]

    def windows(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Cut inputs into windows, limited in number and characters. A GPU waits for the first ones, which are small."""
        large = self.config.model.d_model >= LARGE
        most = WINDOW_OF_A_GPU if self.on_gpu else SHORT if large else WINDOW
        window, size, room = list[str](), 0, max(1, most // 8) if self.on_gpu else most
        for text in texts:
            window.append(text)
            size += len(text) if isinstance(text, str) else 0
            if len(window) == room or size >= HELD:
                yield window
                window, size, room = [], 0, min(2 * room, most)
        if window:
            yield window

    def searched(
        self, batches: Iterable[tuple[Engine, list[int]]], search: Callable[[Engine, list[int]], T]
    ) -> Iterator[tuple[list[int], T]]:
        """Search batch by batch.

        While a GPU searches, the next batch is laid out, and the last one put together. CTranslate2 gets two batches at
        a time, so that a worker that has finished its part of one does not wait for the others.

        Several threads may call this, each for a window of a long list. A GPU answers all batches of one window before
        those of the next. If the windows took turns, all would end at the same time, and the GPU would wait for
        all the next ones to be tokenized.
        """
        batches = wanted(batches)
        several = [*islice(batches, 2)]
        batches = chain(several, batches)
        if len(several) < 2 or (several[0][0] is not self._ctranslate2 and not self.on_gpu):
            for engine, rows in batches:
                yield rows, search(engine, rows)
            return
        on_gpu = several[0][0] is not self._ctranslate2
        if on_gpu and self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(BATCHES_OF_A_GPU)
        shared = self._pool if on_gpu else None
        for (_, rows), found in machine.ahead(lambda batch: search(*batch), batches, shared):
            yield rows, found

    def _through_ctranslate2(self, inputs: int) -> Engine:
        if self._ctranslate2 is None:
            from seq2see.decoding.ctranslate2_engine import CTranslate2Engine

            assert self.export is not None
            vocabularies = self.tokenizers.source.vocabulary(), self.tokenizers.target.vocabulary()
            special = Special.of(self.tokenizers)
            self._ctranslate2 = CTranslate2Engine(self.export, vocabularies, special, self.config.model, inputs=inputs)
        return self._ctranslate2

    def _through_torch(self) -> TorchEngine:
        """Return the torch engine; on a GPU the last one, which is ready, if it is for this network."""
        transformer = self.inner()
        if self._torch is None or not self._torch.on_gpu or not self._torch.fits(transformer):
            from seq2see.decoding.both_ways import engine_of

            self._torch = engine_of(transformer, Special.of(self.tokenizers))
        return self._torch

    def _keep_export(self, inputs: int) -> None:
        """Write an export into the user's cache if the folder has none and the request is large enough."""
        size = self.config.model.parameters
        if self.path is None or self._as_read is not None or self._tried_export or self.config.model.members > 1:
            return
        if size < ALWAYS_EXPORTED and size * inputs < WORTH_EXPORT and has_torch():
            return
        self._tried_export = True
        try:
            self.export = self._written("float32")
        except (ImportError, UserError, OSError) as error:
            logging.getLogger("seq2see").info("No export could be written, so torch answers: %s", error)

    def _require(self, quantization: str) -> None:
        """Find or write the export that was asked for by name."""
        assert self.path is not None
        if self.device != "cpu":
            raise UserError(f"`engine` is {self.engine}, but it answers on the cpu, not on {self.device}.")
        self.export = engines.ready_export(self.path, self.config.model, quantization)
        if self.export is not None:
            return
        try:
            self.export = self._written(quantization)
        except ImportError:
            raise UserError(f"`engine` is {self.engine}, but the package ctranslate2 is not installed.") from None
        except OSError as error:
            raise UserError(
                f"`engine` is {self.engine}, but its export cannot be kept in {cache_folder()} "
                f"({error.strerror or error}): set XDG_CACHE_HOME to a folder of yours."
            ) from None
        except EightBitsError as error:
            raise EightBitsError(f"`engine` is int8, but {str(error).replace('In', 'in', 1)}") from None

    def _written(self, quantization: str) -> Path:
        """Write an export into the user's cache."""
        from seq2see.interchange.to_ctranslate2 import export

        assert self.path is not None
        logging.getLogger("seq2see").info("Preparing %s for this machine (once).", self.path.name)
        kept = engines.kept_in(self.path, self.config.model, quantization)
        rules = self.config.decoding.but(max_length=CHECKED_TOKENS)
        kept.parent.mkdir(0o700, parents=True, exist_ok=True)
        try:
            model = self.inner() if has_torch() else self.config.model
            export(self.path, model, self.tokenizers, quantization, rules=rules, place=kept, count=CHECKED)
        except OSError:  # another process may have written it meanwhile
            if engines.ready_export(self.path, self.config.model, quantization) is None:
                raise
        engines.make_room(kept)
        return kept / engines.FORMAT

    def _row_through_torch(self, beam: int) -> bool:
        """Whether torch answers a single input faster: on ARM, CTranslate2 packs large matrices anew for each row."""
        if self.engine != "auto" or beam > 1 or "torch" not in sys.modules:
            return False
        return self.config.model.d_model >= LARGE_ROW and platform.machine() in ("aarch64", "arm64")


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec("torch") is not None


def cannot(beam: int, n_best: int, vocabulary: int, constrained: bool = False, rules: DecodingConfig = PAPER) -> str:
    """Return why CTranslate2 would not give the answers of our search; empty if it would.

    ``rules`` are those of the model. For the paper's beam search, the engine ranks the greedy answer, too.
    """
    for name, idle in engines.WITHOUT.items():
        if getattr(rules, name) != idle:
            return f"it does not support decoding.{name}"
    if rules.no_repeat == 1:
        return "it does not count the first token, and decoding.no_repeat is 1"
    if beam > 1 and rules.stopping == "beaten":
        return "its beam search ends by another rule than decoding.stopping = 'beaten'"
    if beam > 1 and rules.stopping == "full":
        for name, idle in MADE_LIKELIER.items():
            if getattr(rules, name) != idle:
                return f"its beams compute other probabilities with decoding.{name}"
    if constrained:
        return "it cannot restrict its answers"
    if n_best > 1:
        return f"{n_best} answers to each input were requested, and its lower ranks differ from ours"
    if beam > 1 and 2 * beam > vocabulary:
        return f"a beam of {beam} is too wide for {vocabulary} target tokens"
    return ""


def _fingerprint(network: Transformer) -> object:
    """Return what changes when a network is edited: its modules, weights and hooks.

    An edit through ``parameter.data`` changes nothing but the numbers, so their checksum is part of it.
    """
    parts = [
        (name, type(part), getattr(part, "recorder", None), len(part._forward_hooks), len(part._forward_pre_hooks))
        for name, part in network.named_modules()
    ]  # fmt: skip
    tensors = (*network.named_parameters(), *network.named_buffers())
    return parts, [(name, tensor.dtype, tensor._version, _checksum(tensor)) for name, tensor in tensors]


def _checksum(tensor: Tensor) -> int:
    import torch

    return zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
