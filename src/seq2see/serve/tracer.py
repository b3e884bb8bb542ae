"""Answers a text so that every number on the way is kept: a quick answer first, then one pass that is watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from seq2see.decoding.cpu import threads_of, without_onednn
from seq2see.decoding.engines import SMALL, Engine
from seq2see.decoding.search import CachedReader, Special, continued, limits_of
from seq2see.errors import InputError
from seq2see.inspection.tables import attention_name
from seq2see.inspection.trace import Edit, Recording, Trace, attached, mute_head, names_of
from seq2see.masks import EVERYTHING
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq

Head = tuple[str, int, int]  # attention, layer, head
KEPT = 2**26  # numbers of a trace that is remembered


class Tracer:
    """Traces texts, and remembers the last trace: the page asks for more of it when that is looked at.

    ``quick`` is the same model with an engine that answers faster than the network that is watched, if there is one.
    """

    def __init__(self, model: Seq2Seq, quick: Seq2Seq | None = None) -> None:
        self.model = model
        self.quick = quick
        self.last: tuple[tuple[int, ...], tuple[Head, ...], Trace] | None = None

    def trace(self, text: str, prefix: Sequence[int] = (), muted: Sequence[Head] = ()) -> Trace:
        """Answer a text greedily after some ids that are forced, with some heads switched off."""
        self.model.check(text)
        text = self.model.folded(text)
        self._check_prefix(prefix)
        if self.last is not None:
            forced, off, last = self.last
            # who asks for more of an answer forces all of it
            same = tuple(prefix) in (forced, tuple(last.output_ids))
            if same and last.text == text and off == tuple(muted):
                return last
        self.last = None  # let its memory go first
        with threads_of(1) if self.model.config.model.d_model < SMALL else without_onednn():
            found = self._new(text, prefix, _muting(self.model.transformer, muted))
        if sum(value.numel() for value in found.values.values()) <= KEPT:
            self.last = tuple(prefix), tuple(muted), found
        return found

    @torch.inference_mode()
    def _new(self, text: str, prefix: Sequence[int], edit: Mapping[str, Edit]) -> Trace:
        transformer, tokenizers = self.model.transformer, self.model.tokenizers
        source_ids = tokenizers.source.encode(text)
        engine = None if prefix or edit else self._faster()
        recording = Recording(edit)
        with attached(transformer, recording):
            memory = transformer.encode(torch.tensor(source_ids))  # (S, D)
        ids = (
            self._continued(source_ids, memory, prefix, edit)
            if engine is None
            else engine.ids([source_ids])[0]
        )
        logits = self._read(ids, memory, recording)
        if engine is not None:
            # An engine of other arithmetic may take the other of two tokens that are equally likely. What is shown
            # as chosen is what these numbers say.
            said: list[int] = logits.argmax(-1).tolist()
            right = next(
                (t for t, (own, its) in enumerate(zip(said, ids, strict=True)) if own != its), len(ids)
            )
            again = self._continued(source_ids, memory, [*ids[:right], *said[right : right + 1]], edit)
            if again != ids:
                ids = again
                logits = self._read(ids, memory, recording)
        traced = Trace(transformer, tokenizers, text, source_ids, [tokenizers.target.start, *ids], edit)
        traced.values = {**recording.values, "probabilities": logits.float().softmax(-1)}
        return traced

    def _faster(self) -> Engine | None:
        """Return the engine that answers, unless it is the network itself."""
        engine = (self.quick or self.model).engine_for(1)
        return None if engine.name == "torch, float32" else engine

    def _read(self, ids: list[int], memory: Tensor, recording: Recording) -> Tensor:
        """Read an answer, all positions at once, keeping every value: logits (T, V)."""
        with attached(self.model.transformer, recording):
            read = torch.tensor([self.model.tokenizers.target.start, *ids[:-1]])
            return self.model.transformer.decode(read, memory)

    def _continued(
        self, source_ids: list[int], memory: Tensor, prefix: Sequence[int], edit: Mapping[str, Edit]
    ) -> list[int]:
        """Answer greedily after a beginning; without an edit nothing is attached, as when anybody asks."""
        transformer, tokenizers = self.model.transformer, self.model.tokenizers
        special = Special(tokenizers.target.start, tokenizers.target.end, tokenizers.source.pad)
        reader = CachedReader(transformer, memory[None], EVERYTHING)
        # one row at a time is too little to share out, most of all on a machine that does other work too
        with threads_of(1), attached(transformer, Recording(edit)) if edit else nullcontext():
            return continued(reader, special, limits_of(transformer, [source_ids]), prefix)

    def _check_prefix(self, prefix: Sequence[int]) -> None:
        target, longest = self.model.tokenizers.target, self.model.config.model.max_length
        if any(not 0 <= number < target.size for number in prefix):
            raise InputError(
                f"The forced beginning has ids beyond the vocabulary: 0 to {target.size - 1} were expected."
            )
        if target.end in prefix[:-1]:
            raise InputError("The forced beginning goes on after its <eos>: let it end there.")
        if len(prefix) > longest:
            raise InputError(
                f"The forced beginning has {len(prefix):,} tokens, but this model takes {longest:,}."
            )


def _muting(transformer: Transformer, muted: Sequence[Head]) -> dict[str, Edit]:
    heads: dict[str, list[int]] = {}
    names = names_of(transformer) if muted else []
    for attention, layer, head in muted:
        heads.setdefault(f"{attention_name(names, attention, layer)}.z", []).append(head)
    return {name: mute_head(*numbers) for name, numbers in heads.items()}
