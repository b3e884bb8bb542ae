"""``/api/trace``: answers a text and keeps every number. A fast engine answers first, then one run is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from seq2see.answering.options import Options
from seq2see.config import ModelConfig
from seq2see.decoding.engines import SMALL
from seq2see.decoding.torch_engine import threads_of, without_onednn
from seq2see.documents.terms import Glossary
from seq2see.errors import InputError, UserError
from seq2see.inspection.glossary import entry_of
from seq2see.inspection.tables import attention_name, muting
from seq2see.inspection.trace import Edit, TakeOver, Trace, all_of, globbed, names_of, record, view_of
from seq2see.kernels.ensemble import member_of
from seq2see.model.transformer import Transformer
from seq2see.page.describe import describe, describe_ensemble
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.answers import Cost
from seq2see.serve.batching import Limits, too_long
from seq2see.serve.forms import Drawn, TraceRequest

KEPT = 2**24  # most numbers of a trace that is kept


class Tracer:
    """Traces texts and keeps the last trace, because the page requests more of it when the reader opens a part.

    It traces a view of the model's network, so that other answers are not affected.
    """

    network: Transformer  # of the member that is looked into; it is read for the first trace

    def __init__(self, model: Seq2Seq, limits: Limits | None = None) -> None:
        self.model, self.limits, self.member = model, limits or Limits(), -1
        self.last: tuple[tuple[int, ...], tuple[Any, ...], Trace] | None = None

    @cached_property
    def names(self) -> list[str]:
        """All values that a trace records; those of all members of an ensemble have the same names."""
        return [*names_of(self.network), "probabilities"]

    def look_into(self, member: int) -> None:
        """Trace this member of an ensemble from now on."""
        if member != self.member:
            self.network = view_of(member_of(self.model.network.inner(), member))
            self.member, self.last = member, None

    def size(self, request: TraceRequest) -> float:
        """Return the multiplications of a trace; refuse one that records, computes or sends too much."""
        self.look_into(request.member)
        _check_head(self.network, request.head)
        self.limits.check("paths in its beam", request.beam, self.limits.beam)
        self.limits.check("terms in its glossary", len(request.glossary or ()), self.limits.listed)
        config, answerer = self.model.config.model, self.model.answerer
        self._check_prefix(request.prefix)
        runs = [self._lengths(text) for text in {patch.input for patch in request.patches}]
        source, target = self._lengths(request.input, request.anyway, len(request.prefix))
        self._check_answer(request, source, target)
        # A run drafts an answer, reads it, continues it otherwise and reads it again. Where an edit is not the same at
        # every position, each step reads all positions again; so does each step of each path of a beam.
        local = bool(request.patches or request.drawn)
        steps = target * (target + 1) / 2 if local else target
        tokens: float = sum(s + 4 * t for s, t in [*runs, (source, target)])
        tokens += (local + (request.beam if request.beam > 1 else 0)) * steps
        tokens += len(request.effects) * (source + target)
        work: float = config.parameters * tokens
        if config.members > 1:
            work += Cost(answerer, Options(whole=True))(request.input)
        if request.glossary is not None:
            work += Cost(answerer, Options(glossary={}))(request.input)
        self.limits.check_work(work)
        return work

    def _lengths(self, text: str, anyway: bool = False, forced: int = 0) -> tuple[int, int]:
        """Return the tokens of a text and the most tokens of its answer."""
        if why := too_long(text, self.limits.characters):
            raise UserError(why)
        self.model.answerer.check(text, anyway)
        config = self.model.config
        source = len(self.model.tokenizers.source.encode(self.model.answerer.read(text)))
        return source, max(forced, config.decoding.limit(source, config.model.max_length))

    def _check_answer(self, request: TraceRequest, source: int, target: int) -> None:
        """Refuse a trace that records or sends too many numbers."""
        limits = self.limits
        recorded = {name: _count(name, self.model.config.model, source, target) for name in self.names}
        if sum(recorded.values()) > limits.numbers:
            raise UserError(
                f"The trace may record {sum(recorded.values()):,} numbers, and {limits.numbers:,} is the limit: "
                "send a shorter text."
            )
        asked = globbed(request.names)
        sent = {**recorded, **{name: value.numel() for name, value in self.network.named_parameters()}}
        size = sum(count for name, count in sent.items() if asked(name)) * (2 if request.compact else 4) * 4 // 3
        if size > limits.answer:
            raise UserError(
                f"The trace may have {size:,} bytes, and {limits.answer:,} is the limit: request fewer values by "
                "`names`, or `compact` ones."
            )

    def _check_prefix(self, prefix: Sequence[int]) -> None:
        target, longest = self.model.tokenizers.target, self.model.config.model.max_length
        if any(not 0 <= number < target.size for number in prefix):
            raise InputError(f"The forced beginning has ids outside the vocabulary: ids are 0 to {target.size - 1}.")
        if target.end in prefix[:-1]:
            raise InputError("The forced beginning continues after its <eos>: end it there.")
        if len(prefix) > longest:
            raise InputError(
                f"The forced beginning has {len(prefix):,} tokens, but this model takes at most {longest:,}."
            )

    def trace(self, request: TraceRequest) -> Trace:
        """Answer a text greedily, after a forced beginning, with muted heads, values of other runs and a drawn row."""
        self.look_into(request.member)
        text, prefix = self.model.answerer.read(request.input), tuple(request.prefix)
        if self.last is not None:
            forced, edits, last = self.last
            # A request for more of an answer forces the whole answer.
            if prefix in (forced, tuple(last.output_ids)) and (last.text, edits) == (text, request.edits):
                return last
        self.last = None  # frees its memory before the new trace needs memory
        with threads_of(1) if self.model.config.model.d_model < SMALL else without_onednn():
            found = self._new(text, prefix, self._edits(text, request))
        if sum(value.numel() for value in found.values.values()) <= KEPT:
            self.last = prefix, request.edits, found
        return found

    def _edits(self, text: str, request: TraceRequest) -> dict[str, Edit]:
        """Return the edits that mute heads, copy values and replace a row, by the name of the value."""
        found: dict[str, list[Edit]] = {name: [one] for name, one in muting(self.network, request.heads).items()}
        others: dict[str, Trace] = {}
        for patch in request.patches:
            if patch.name not in self.names or patch.name == "probabilities":
                raise InputError(f"There is no value {patch.name!r} to copy: `seq2see trace TEXT` lists all names.")
            if patch.input not in others:
                others[patch.input] = self._new(self.model.answerer.read(patch.input), (), {})
            places = (None if place < 0 else place for place in (patch.head, patch.row, patch.col, patch.fromRow))
            taken = TakeOver(others[patch.input][patch.name], patch.name, *places)
            found.setdefault(patch.name, []).append(taken)
        if (drawn := request.drawn) is not None:
            name = f"{attention_name(self.names, drawn.attention, drawn.layer)}.weights"
            row = self._row(text, drawn).expand(self.network.config.heads, 1, -1)
            found.setdefault(name, []).append(TakeOver(row, name, drawn.head, drawn.row, from_row=0))
        return {name: all_of(*edits) for name, edits in found.items()}

    def _row(self, text: str, drawn: Drawn) -> Tensor:
        """Return the shares of a drawn row. There must be one for each token that the row looks at."""
        _check_head(self.network, drawn.head)
        wanted = len(self.model.tokenizers.source.encode(text))
        if len(drawn.shares) != wanted:
            raise InputError(
                f"The drawn row has {len(drawn.shares)} shares, but the text has {wanted} tokens: give one for each."
            )
        return torch.tensor(drawn.shares)

    def _new(self, text: str, prefix: Sequence[int], edit: Mapping[str, Edit]) -> Trace:
        # For one input the engine may be torch, which is the slower one here, so two are asked for.
        tokenizers, rules, engine = self.model.tokenizers, self.model.config.decoding, self.model.network.engine_for(2)

        def draft(source: list[int]) -> list[int]:
            return engine.ids([source], rules.but(beam=1))[0]

        faster = None if engine.name == "torch, float32" else draft
        return record(self.network, tokenizers, text, None, edit, rules=rules, begin=prefix, draft=faster)


def describe_trace(tracer: Tracer, request: TraceRequest) -> dict[str, Any]:
    """Answer the text of a request and describe the trace. With a glossary the answer with its terms is forced."""
    tracer.size(request)
    model, known = tracer.model, dict[str, Any]()
    if request.glossary is not None:
        if request.is_edited:
            raise UserError("A glossary cannot be used with prefix, muted, patches or drawn: leave one out.")
        prefix, known = _with_terms(model, request.input, Glossary(request.glossary))
        request = request.model_copy(update={"prefix": prefix})
    found = describe(
        tracer.trace(request), request.names, request.beam, request.compact, request.head, request.also, request.column,
        request.effects,
    )  # fmt: skip
    found |= {**known, "forced": len(request.prefix), "muted": [list(head) for head in request.heads]}
    is_own, answer = not request.is_edited, None
    if model.config.model.members > 1:
        if is_own:  # the member's own answer: all members together may give another one
            [answer] = model.answerer.answer([request.input], Options(whole=True))
            found |= _given(remark=answer.remark)
        found["ensemble"] = describe_ensemble(model.config.model, request.member, answer)
    elif is_own:
        values = [one["log_probability"] for one in found["steps"]]
        sure, remark = model.answerer.judged(request.input, values, found["finished"])
        found |= _given(confidence=sure, remark=remark)
    if request.anyway and (why := model.answerer.unfit(request.input)):
        found["unfit"] = why
    if request.patches:
        found["patches"] = [patch.model_dump() for patch in request.patches]
    return found | _given(drawn=None if request.drawn is None else request.drawn.model_dump())


def _given(**values: Any) -> dict[str, Any]:
    """Return the values that are there."""
    return {name: value for name, value in values.items() if value is not None}


def _with_terms(model: Seq2Seq, text: str, terms: Glossary) -> tuple[list[int], dict[str, Any]]:
    """Answer a text with a glossary; return the ids of the answer, and remarks about it."""
    [answer] = model.answers([text], glossary=terms)
    if answer.output is None:
        raise InputError(str(answer.error))
    target = model.tokenizers.target
    known = _given(confidence=answer.confidence, remark=answer.remark)
    ids = target.encode(answer.output)[len(target.before) :]
    return ids, {**known, "terms": len(terms.found(text)), "repairs": answer.repairs}


def _count(name: str, config: ModelConfig, source: int, target: int) -> int:
    """Count the numbers of a recorded value by the glossary's letters for its shape."""
    lengths = {"…": 1, "S": source, "T": target, "D": config.d_model, "H": config.heads, "K": config.d_k,
               "d_v": config.d_v, "F": config.d_ff, "V": config.target_vocabulary}  # fmt: skip
    return prod(lengths[letter] or 1 for letter in entry_of(name).shape)


def _check_head(transformer: Transformer, head: int | None) -> None:
    heads = transformer.config.heads
    if head is not None and head >= heads:
        raise UserError(f"There is no head {head}: heads are 0 to {heads - 1}.")
