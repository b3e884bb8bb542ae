"""A search in a process of its own, for a large file on a GPU.

A GPU waits whenever the thread that launches its kernels waits for the interpreter. Reading, tokenizing and writing
the lines would hold the interpreter for most of that time, so the search has an interpreter of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from traceback import format_exc
from typing import TYPE_CHECKING, Any

from seq2see import machine
from seq2see.answering.network import BATCHES_OF_A_GPU
from seq2see.decoding.hypothesis import PAPER
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq, load, without_weights

if TYPE_CHECKING:
    from seq2see.config import DecodingConfig
    from seq2see.decoding.allowed import Automaton
    from seq2see.decoding.engines import Engine
    from seq2see.decoding.hypothesis import Hypothesis


class Apart:
    """An engine in another process. Several threads may call it."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        """Start the process, which makes the engine; an error there is raised here."""
        context = get_context("spawn")  # a fork would copy the locks of other threads
        ours, theirs = zip(*(context.Pipe() for _ in range(BATCHES_OF_A_GPU)), strict=True)
        self.process = context.Process(target=_serve, args=(engine, theirs), daemon=True)
        # The process inherits this: Ctrl-C is for the process that writes.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        self.free = SimpleQueue[Connection]()
        for mine, other in zip(ours, theirs, strict=True):
            other.close()  # so that the end of the process is noticed
            self.free.put(mine)
        self.name: str = self.call("name")

    @property
    def draft(self) -> Apart:
        """Itself: there is no faster one."""
        return self

    def ids(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        allowed: Automaton | None = None,
    ) -> list[list[int]]:
        """Return the ids of the best allowed answer to each source."""
        found: list[list[int]] = self.call("ids", sources, rules, allowed)
        return found

    def search(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        n_best: int = 1,
        allowed: Automaton | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source, best first, with the log-probability of each token."""
        found: list[list[Hypothesis]] = self.call("search", sources, rules, n_best, allowed)
        return found

    def call(self, name: str, *given: object) -> Any:
        """Return an attribute of the engine, or the result of a method."""
        way = self.free.get()
        try:
            way.send((name, given))
            found = way.recv()
        except (EOFError, OSError):
            self.process.join()
            raise UserError(
                f"The process that searches has ended with status {self.process.exitcode}: the memory may have "
                "been full."
            ) from None
        finally:
            self.free.put(way)
        if isinstance(found, Exception):
            raise found
        return found


def loaded(model: str, device: str, engine: str) -> Seq2Seq:
    """Load a model whose weights are in another process."""
    found = without_weights(model, device, engine)
    found.network.apart = Apart(partial(_engine, model, device, engine))
    return found


def _engine(model: str, device: str, engine: str) -> Engine:
    return load(model, device, engine).network.engine_for(1)


def _serve(make: Callable[[], Engine], ways: Sequence[Connection]) -> None:
    """Answer the calls of each way in a thread, until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for Windows, where this is not inherited
    engine = _tried(make)

    def answer(way: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                name, given = way.recv()
                way.send(engine if isinstance(engine, Exception) else _tried(_called, engine, name, *given))

    with machine.brisk(), machine.uncollected(), ThreadPoolExecutor(BATCHES_OF_A_GPU) as pool:
        list(pool.map(answer, ways))


def _called(engine: Engine, name: str, *given: object) -> Any:
    value = getattr(engine, name)
    return value(*given) if callable(value) else value


def _tried(function: Callable[..., Any], *given: object) -> Any:
    """Return the result of a function, or its error in a form that can be sent."""
    try:
        return function(*given)
    except UserError as error:
        return error
    except Exception:
        return RuntimeError(format_exc())
