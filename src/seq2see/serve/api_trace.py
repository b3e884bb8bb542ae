"""``/api/trace``: answers a text and keeps every number. A fast engine answers first, then one run is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from seq2see.answering.options import Options
from seq2see.answering.translation import BEAM
from seq2see.config import ModelConfig
from seq2see.decoding.cpu import threads_of, without_onednn
from seq2see.decoding.engines import SMALL
from seq2see.documents.terms import Glossary
from seq2see.errors import InputError, UserError
from seq2see.inspection.glossary import entry_of
from seq2see.inspection.tables import Head, attention_name, muting
from seq2see.inspection.trace import Edit, TakeOver, Trace, all_of, globbed, names_of, record, view_of
from seq2see.kernels.ensemble import member_of
from seq2see.model.transformer import Transformer
from seq2see.page.describe import describe, describe_ensemble
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.api_predict import MOST_SEARCHES, check_work, cost_of
from seq2see.serve.batching import Limits
from seq2see.serve.forms import Form, Hasty, Request_, Terms

#: What is edited in a trace: heads that are off, copied values, a drawn row.
_Edits = tuple[tuple[Head, ...], "tuple[Patch, ...]", "Drawn | None"]
KEPT = 2**24  # most numbers of a trace that is kept
Name = Annotated[str, Field(max_length=100)]  # of a value, or a glob of names


class HeadName(Form):
    """One head of one attention."""

    attention: Literal["encoder", "decoder", "cross"]
    layer: int = Field(ge=0)
    head: int = Field(ge=0)


class Patch(Form):
    """Values to copy from the run on another text."""

    model_config = ConfigDict(frozen=True)

    input: str = Field(description="The other text.")
    name: Name = Field(description="Name of the value.")
    head: int = Field(-1, ge=-1, description="Which head; −1 is all.")
    row: int = Field(-1, ge=-1, description="Which position; −1 is all.")
    col: int = Field(-1, ge=-1, description="Which column; −1 is all.")
    fromRow: int = Field(-1, ge=-1, description="The position in the other run; −1 is the same.")  # noqa: N815 - the page's name


class Drawn(HeadName):
    """A row of a head's attention to the source, with shares of the caller's choice."""

    attention: Literal["encoder", "cross"]  # a row of the decoder's own attention grows with the answer
    row: int = Field(ge=0, description="Which position looks.")
    shares: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Hasty()] = Field(
        description="The share of each token that it looks at."
    )


class TraceRequest(Request_):
    """A text to answer, with every number on the way."""

    input: str = Field(description="The text.")
    member: int = Field(0, ge=0, description="Of an ensemble, which member to look into; it answers alone.")
    prefix: Annotated[list[Annotated[int, Field(ge=0)]], Hasty()] = Field(
        [], description="Ids that the answer must begin with."
    )
    muted: Annotated[list[HeadName], Hasty()] = Field([], description="Heads to switch off.")
    patches: Annotated[list[Patch], Hasty()] = Field(
        [], description="Values to copy from runs on other texts.", max_length=8
    )
    drawn: Drawn | None = Field(None, description="One row of attention to replace.")
    names: list[Name] = Field(["*"], description="Globs of the values to send.", max_length=64)
    beam: int = Field(1, ge=1, description="Width of a beam search whose tree is sent; 1 sends none.")
    compact: bool = Field(
        False, description="Send attention as uint8 (255 is 1), everything else as float16, compressed."
    )
    head: int | None = Field(None, ge=0, description="Of values that have heads, send this head only.")
    column: int | None = Field(None, ge=0, description="Of W^O, W₁ and W₂, send this column only, with its bias.")
    also: list[Literal["lens"]] = Field([], description="lens: the token that each layer would choose.", max_length=1)
    anyway: bool = Field(False, description="Answer a text that the model was not made for, such as a February 30.")
    glossary: Terms | None = Field(
        None, description="The translation of each term, as for /api/predict; the answer with them is traced."
    )

    @property
    def heads(self) -> list[Head]:
        """The heads to switch off, each once."""
        return list(dict.fromkeys((one.attention, one.layer, one.head) for one in self.muted))


class Tracer:
    """Traces texts and keeps the last trace, because the page requests more of it when the reader opens a part.

    It traces a view of the model's network, so that other answers are not affected.
    """

    def __init__(self, model: Seq2Seq, limits: Limits | None = None) -> None:
        self.model, self.limits = model, limits or Limits()
        self.member = 0  # of an ensemble
        self.last: tuple[tuple[int, ...], _Edits, Trace] | None = None

    @cached_property
    def network(self) -> Transformer:
        """The traced network; it is read for the first trace."""
        return view_of(member_of(self.model.network.inner(), self.member))

    def look_into(self, member: int) -> None:
        """Trace another member of an ensemble from now on. All members have the same values, by the same names."""
        if member != self.member:
            self.network = view_of(member_of(self.model.network.inner(), member))
            self.member, self.last = member, None

    @cached_property
    def names(self) -> list[str]:
        """All values that a trace records."""
        return [*names_of(self.network), "probabilities"]

    def size(self, request: TraceRequest) -> float:
        """Return the multiplications of a trace; refuse one that records, computes or sends too much."""
        config, rules = self.model.config.model, self.model.config.decoding
        self._check_prefix(request.prefix)
        runs = [self._lengths(text, False, 0) for text in {patch.input for patch in request.patches}]
        source, target = self._lengths(request.input, request.anyway, len(request.prefix))
        self._check_answer(request, source, target)
        # A run drafts an answer, reads it, continues it otherwise and reads it again. Where an edit is not the same at
        # every position, each step reads all positions again; so does each step of each path of a beam.
        local = bool(request.patches or request.drawn)
        steps = target * (target + 1) / 2 if local else target
        tokens: float = sum(s + 4 * t for s, t in [*runs, (source, target)])
        tokens += (local + (request.beam if request.beam > 1 else 0)) * steps
        work: float = config.parameters * tokens
        together = cost_of(self.model.config, rules, len(request.input))
        work += together if config.members > 1 else 0
        work += together * MOST_SEARCHES * BEAM if request.glossary is not None else 0
        check_work(work, self.limits)
        return work

    def _lengths(self, text: str, anyway: bool, forced: int) -> tuple[int, int]:
        """Return the tokens of a text and the most tokens of its answer."""
        self.model.answerer.check(text, anyway)
        config = self.model.config
        source = len(self.model.tokenizers.source.encode(self.model.answerer.read(text)))
        return source, max(forced, config.decoding.limit(source, config.model.max_length))

    def _check_answer(self, request: TraceRequest, source: int, target: int) -> None:
        """Refuse a trace that records or sends too many numbers."""
        config, limits = self.model.config.model, self.limits
        recorded = {name: _count(name, config, source, target) for name in self.names}
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

    def trace(
        self,
        text: str,
        prefix: Sequence[int] = (),
        muted: Sequence[Head] = (),
        anyway: bool = False,
        patches: Sequence[Patch] = (),
        drawn: Drawn | None = None,
    ) -> Trace:
        """Answer a text greedily, after a forced beginning, with muted heads, values of other runs and a drawn row."""
        self.model.answerer.check(text, anyway)
        text = self.model.answerer.read(text)
        self._check_prefix(prefix)
        if self.last is not None:
            forced, edits, last = self.last
            # A request for more of an answer forces the whole answer.
            same = tuple(prefix) in (forced, tuple(last.output_ids))
            if same and last.text == text and edits == (tuple(muted), tuple(patches), drawn):
                return last
        self.last = None  # frees its memory before the new trace needs memory
        with threads_of(1) if self.model.config.model.d_model < SMALL else without_onednn():
            found = self._new(text, prefix, self._edits(text, muted, patches, drawn))
        if sum(value.numel() for value in found.values.values()) <= KEPT:
            self.last = tuple(prefix), (tuple(muted), tuple(patches), drawn), found
        return found

    def _edits(
        self, text: str, muted: Sequence[Head], patches: Sequence[Patch], drawn: Drawn | None
    ) -> dict[str, Edit]:
        """Return the edits that mute heads, copy values and replace a row, by the name of the value."""
        found: dict[str, list[Edit]] = {name: [one] for name, one in muting(self.network, muted).items()}
        others: dict[str, Trace] = {}
        for patch in patches:
            if patch.name not in self.names or patch.name == "probabilities":
                raise InputError(f"There is no value {patch.name!r} to copy: `seq2see trace TEXT` lists all names.")
            if patch.input not in others:
                others[patch.input] = self._new(self.model.answerer.read(patch.input), (), {})
            places = (None if place < 0 else place for place in (patch.head, patch.row, patch.col, patch.fromRow))
            taken = TakeOver(others[patch.input][patch.name], patch.name, *places)
            found.setdefault(patch.name, []).append(taken)
        if drawn is not None:
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


def describe_trace(tracer: Tracer, request: TraceRequest) -> dict[str, Any]:
    """Answer the text of a request and describe the trace. With a glossary the answer with its terms is forced."""
    text, prefix, muted = request.input, request.prefix, request.heads
    tracer.look_into(request.member)
    _check_head(tracer.network, request.head)
    tracer.size(request)
    known: dict[str, Any] = {}
    if request.glossary is not None:
        if prefix or muted or request.patches or request.drawn:
            raise UserError("A glossary cannot be used with prefix, muted, patches or drawn: leave one out.")
        prefix, known = _with_terms(tracer, text, request.glossary)
    traced = tracer.trace(text, prefix, muted, request.anyway, request.patches, request.drawn)
    described = describe(
        traced, request.names, request.beam, request.compact, request.head, request.also, request.column
    )  # fmt: skip
    found = {**described, **known, "forced": len(prefix), "muted": [list(key) for key in muted]}
    config = tracer.model.config
    is_edited = bool(prefix or muted or request.patches or request.drawn)
    if config.model.members > 1:
        answer = None
        if not is_edited:  # the answer is the member's own: all members together may give another one
            [answer] = tracer.model.answerer.answer([text], Options(whole=True))
            found |= {} if answer.remark is None else {"remark": answer.remark}
        found["ensemble"] = describe_ensemble(config.model, request.member, answer)
    elif not is_edited:  # the answer is the model's own
        values = [one["log_probability"] for one in found["steps"]]
        sure, remark = tracer.model.answerer.judged(text, values, found["finished"])
        found |= {} if sure is None else {"confidence": sure}
        found |= {} if remark is None else {"remark": remark}
    if request.anyway and (why := tracer.model.answerer.unfit(text)):
        found["unfit"] = why
    if request.patches:
        found["patches"] = [patch.model_dump() for patch in request.patches]
    if request.drawn is not None:
        found["drawn"] = request.drawn.model_dump()
    return found


def _with_terms(tracer: Tracer, text: str, glossary: Mapping[str, str | None]) -> tuple[list[int], dict[str, Any]]:
    """Answer a text with a glossary; return the ids of the answer, and remarks about it."""
    if len(glossary) > tracer.limits.listed:
        raise UserError(f"The glossary may have at most {tracer.limits.listed:,} terms.")
    model, terms = tracer.model, Glossary(glossary)
    [answer] = model.answers([text], glossary=terms)
    if answer.output is None:
        raise InputError(str(answer.error))
    target = model.tokenizers.target
    ids = target.encode(answer.output)[len(target.before) :]
    said = {"confidence": answer.confidence, "remark": answer.remark}
    known = {name: value for name, value in said.items() if value is not None}
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
