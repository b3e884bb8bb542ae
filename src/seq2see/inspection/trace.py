"""See and change what happens inside a model: every value that it computes has a name (CONTRIBUTING, idea 1)."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from math import exp

import numpy as np
import torch
from torch import Tensor, nn

from seq2see.config import DecodingConfig
from seq2see.decoding.hypothesis import PAPER
from seq2see.decoding.readers import Reader, WholeReader, reading
from seq2see.decoding.rule import LogitsRules
from seq2see.decoding.search import Special, continued, limits_of
from seq2see.decoding.torch_engine import threads_of
from seq2see.errors import InputError, UserError
from seq2see.model.sublayers import Observable, Recorder
from seq2see.model.transformer import Transformer, at_rest
from seq2see.storage.folder import Tokenizers

TIE = 1e-3  # the largest difference between two logits that rounding alone can cause

#: The replacement of a value: a tensor, an array, a number, or a function of the value, which may change it in place.
Edit = Tensor | np.ndarray | float | Callable[[Tensor], Tensor]


class Recording:
    """Every value that a model has computed, by name, in order. A name that occurs again keeps its last value."""

    def __init__(self, edit: Mapping[str, Edit] | None = None) -> None:
        self.values: dict[str, Tensor] = {}
        self.edit = dict(edit or {})

    def __call__(self, path: str, x: Tensor) -> Tensor:
        """Apply the edits that match a value, record the result and return it."""
        for pattern, replacement in self.edit.items():
            if fnmatchcase(path, pattern):
                x = _edited(path, x, replacement)
        self.values[path] = x.detach()
        return x

    @property
    def names(self) -> list[str]:
        """All names, in the order of computation."""
        return list(self.values)

    def match(self, pattern: str) -> list[str]:
        """Return the names that a glob such as ``encoder.*.weights`` matches. No match is an error."""
        return _matching(pattern, self.names)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.values:
            raise UserError(f"There is no value {name!r}. {_near(name, self.names)}")
        return self.values[name]


@contextmanager
def trace(transformer: Transformer, edit: Mapping[str, Edit] | None = None) -> Iterator[Recording]:
    """Record every named value that the model computes in this block, and replace those named in ``edit``.

    Inside the block attention runs in its written body. A key of ``edit`` is a name or a glob.

    >>> from seq2see.config import ModelConfig
    >>> transformer = Transformer(ModelConfig(d_model=16, heads=4, source_vocabulary=9, target_vocabulary=9))
    >>> with trace(transformer, edit={"encoder.layers.0.self_attention.z": mute_head(2)}) as t:
    ...     logits = transformer(torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]]))
    >>> t["decoder.layers.0.cross_attention.weights"].shape
    torch.Size([1, 4, 2, 3])
    """
    _check(transformer, edit)
    recording = Recording(edit)
    with attached(transformer, recording):
        yield recording


@contextmanager
def attached(model: nn.Module, recording: Recorder) -> Iterator[None]:
    """Attach a recorder to a model or to a part of it: the recorder gets every named value inside this block."""
    observed = [module for module in model.modules() if isinstance(module, Observable)]
    before = [module.recorder for module in observed]
    try:
        for module in observed:
            module.recorder = recording
        yield
    finally:
        for module, recorder in zip(observed, before, strict=True):
            module.recorder = recorder


def view_of(transformer: Transformer) -> Transformer:
    """Return a network of the same weights, not of copies, which can be watched while the first one answers others."""
    shared = [*transformer.parameters(), *transformer.buffers()]
    return copy.deepcopy(transformer, {id(tensor): tensor for tensor in shared})


def names_of(transformer: Transformer) -> list[str]:
    """Run a model on one token and return the names of all its values."""
    recording = Recording()
    one = torch.zeros(1, dtype=torch.long, device=next(transformer.parameters()).device)
    with at_rest(transformer), attached(transformer, recording):
        transformer(one, one)
    return recording.names


def mute_head(*heads: int) -> Callable[[Tensor], Tensor]:
    """Return an edit for a ``z``, (…, T, H, K), that sets some heads to 0, so that they add nothing to the output."""

    def mute(z: Tensor) -> Tensor:
        for head in heads:
            if not 0 <= head < z.shape[-2]:
                raise UserError(f"There is no head {head} to mute: heads are 0 to {z.shape[-2] - 1}.")
            z[..., head, :] = 0
        return z

    mute.everywhere = True  # type: ignore[attr-defined]
    return mute


def everywhere(edit: Mapping[str, Edit]) -> bool:
    """Whether edits do the same at every position, so that a search may keep the keys and values of what it has read."""
    return all(getattr(one, "everywhere", False) for one in edit.values())


@dataclass(frozen=True)
class TakeOver:
    """An edit that puts numbers of another run in the place of this run's: of a head, a position, a column; None is all.

    The numbers come from the same place there, or from position ``from_row``. A place that one of the two runs lacks
    stays as it is.

    >>> there = torch.ones(3, 4)
    >>> TakeOver(there, "encoder.memory", row=1)(torch.zeros(2, 4)).sum(-1)
    tensor([0., 4.])
    """

    there: Tensor
    name: str
    head: int | None = None
    row: int | None = None
    col: int | None = None
    from_row: int | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the value, (…, T, D), (…, T, H, K) or (…, H, T, S), with the other run's numbers."""
        here, there = self._by_head(x), self._by_head(self.there).to(x)  # (…, H, T, C)
        rows, cols = (min(here.shape[n], there.shape[n]) for n in (-2, -1))
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)
        if self.row is None:
            to, of = slice(rows), slice(rows)
        else:
            of = slice(self.from_row, self.from_row + 1) if self.from_row is not None else slice(self.row, self.row + 1)
            to = slice(self.row, self.row + 1)
            if to.start >= here.shape[-2] or of.start >= there.shape[-2]:
                return x
        along = slice(cols) if self.col is None else slice(self.col, min(cols, self.col + 1))
        here[..., heads, to, along] = there[heads, of, along]
        return x

    def _by_head(self, x: Tensor) -> Tensor:
        """Return a view of a value as (…, H, T, C); one without heads has one."""
        role = self.name.rsplit(".", 1)[-1]
        if "_attention." not in self.name or role == "out":
            return x.unsqueeze(-3)
        return x.transpose(-2, -3) if role in {"q", "k", "v", "z"} else x


def all_of(*edits: Edit) -> Edit:
    """Return an edit that applies several, one after the other."""

    def apply(x: Tensor) -> Tensor:
        for one in edits:
            x = _edited("", x, one)
        return x

    return edits[0] if len(edits) == 1 else apply


def _check(transformer: Transformer, edit: Mapping[str, Edit] | None) -> None:
    """Refuse an edit of a value that the model does not have, because it would silently change nothing."""
    if edit:
        known = names_of(transformer)
        for pattern in edit:
            _matching(pattern, known)


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    found = list(filter(globbed([pattern]), names))
    if not found:
        raise UserError(f"No value is named {pattern!r}. {_near(pattern, names)}")
    return found


def globbed(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a name matches one of some globs: ``*``, ``?``, ``[abc]`` and ``[!abc]``.

    It means what ``fnmatch`` means, but keeps few patterns: a server may be asked for millions of them.
    """
    matches = [re.compile(translate(pattern)).match for pattern in patterns]
    return lambda name: any(match(name) is not None for match in matches)


def _near(given: str, names: Sequence[str]) -> str:
    """Suggest the names nearest to an unknown name, and say which layers exist."""
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    also = f" Also near: {', '.join(near[1:])}." if near[1:] else ""
    beginnings = dict.fromkeys(name.split(".")[0] for name in names)
    nearest = f"Did you mean {near[0]!r}?{also}" if near else f"Names begin with {', '.join(beginnings)}."
    layers = []
    for side in ("encoder", "decoder"):
        count = len({name.split(".")[2] for name in names if name.startswith(f"{side}.layers.")})
        layers += [f"{side}.layers.0 to {count - 1}"] if count else []
    return f"{nearest} Layers are {' and '.join(layers)}; `seq2see trace TEXT` lists all names."


def _edited(path: str, x: Tensor, replacement: Edit) -> Tensor:
    """Apply one edit to a copy, because the value may share its memory with other values."""
    try:
        new = replacement(x.clone()) if callable(replacement) else torch.as_tensor(replacement)
        if not isinstance(new, Tensor):
            raise TypeError(f"it returned a {type(new).__name__}, not a tensor")
        return new.to(x).broadcast_to(x.shape)
    except (IndexError, RuntimeError, TypeError) as error:
        hint = ""
        if path.startswith("decoder.") or path == "logits":
            hint = " A free answer grows by one position a step; with `target` all positions are there at once."
        raise UserError(
            f"The edit of {path!r} does not fit its value, which is of shape {tuple(x.shape)}: {error}.{hint}"
        ) from error


@dataclass(frozen=True)
class AnswerStep:
    """One step of an answer: the chosen token, and the tokens that the model found likely."""

    id: int
    token: str
    log_probability: float
    entropy: float  # of the whole distribution, in nats; 0 means that the model is certain
    top: list[tuple[str, float]]  # the likeliest tokens and their probabilities

    @property
    def probability(self) -> float:
        """Probability of the chosen token."""
        return exp(self.log_probability)


class Trace(Recording):
    """Everything that a model computed while it answered one text.

    Values have no batch dimension, and edits see none: attention weights are (H, T, S). Row t of a decoder value belongs
    to ``target_tokens[t]``, the token that the decoder reads (``<sos>`` first), and predicts ``output_tokens[t]``, the
    next one.

    >>> import seq2see
    >>> seen = seq2see.load("dates").trace("1845-01-05")
    >>> seen
    <Trace '1845-01-05' → 'January 5, 1845', 96 values>
    >>> seen.source_tokens[:3], seen.output_tokens[:3]
    (['<sos>', '1', '8'], ['J', 'a', 'n'])
    >>> seen["encoder.layers.0.self_attention.weights"].shape  # 4 heads, 12 tokens that look at 12
    torch.Size([4, 12, 12])
    """

    def __init__(
        self,
        transformer: Transformer,
        tokenizers: Tokenizers,
        text: str,
        source_ids: list[int],
        answer_ids: list[int],
        edit: Mapping[str, Edit] | None,
        rules: DecodingConfig = PAPER,
    ) -> None:
        super().__init__(edit)
        self.rules = rules
        self.transformer = transformer
        self.tokenizers = tokenizers
        self.text = text
        self.source_ids = source_ids
        self.target_ids, self.output_ids = answer_ids[:-1], answer_ids[1:]
        self.source_tokens = tokenizers.source.tokens(self.source_ids)
        self.target_tokens = tokenizers.target.tokens(self.target_ids)
        self.output_tokens = tokenizers.target.tokens(self.output_ids)
        self.output = tokenizers.target.decode(self.output_ids)

    def __repr__(self) -> str:
        return f"<Trace {self.text!r} → {self.output!r}, {len(self.values)} values>"

    @property
    def probabilities(self) -> Tensor:
        """P(next token) at each step, (T, V): the softmax of the logits."""
        return self.values["probabilities"]

    def steps(self, top: int = 5) -> list[AnswerStep]:
        """Return the chosen token, its log-probability, the entropy and the ``top`` likeliest tokens of each step."""
        log_probabilities = self.values["logits"].float().log_softmax(-1)  # (T, V)
        entropies = torch.special.entr(self.probabilities).sum(-1)  # (T,)
        best = self.probabilities.topk(min(top, self.probabilities.shape[-1]))
        likeliest = [self.tokenizers.target.tokens(ids) for ids in best.indices.tolist()]
        return [
            AnswerStep(
                id=number,
                token=token,
                log_probability=float(log_probabilities[t, number]),
                entropy=float(entropies[t]),
                top=list(zip(likeliest[t], best.values[t].tolist(), strict=True)),
            )
            for t, (number, token) in enumerate(zip(self.output_ids, self.output_tokens, strict=True))
        ]


def record(
    transformer: Transformer,
    tokenizers: Tokenizers,
    text: str,
    target: str | None = None,
    edit: Mapping[str, Edit] | None = None,
    kind: type[Trace] = Trace,
    rules: DecodingConfig = PAPER,
    begin: Sequence[int] = (),
    draft: Callable[[list[int]], list[int]] | None = None,
) -> Trace:
    """Answer a text, then run the model again on the text and the answer, all positions at once, and keep every value.

    This is the only way to a trace. ``target`` gives the answer instead of letting the model find its own, ``begin`` only
    its first ids. ``edit`` replaces values by name or glob; a tensor must have the value's shape or broadcast to it. The
    edit also acts while the model answers: there a function sees the values of all positions so far at every step. It
    then acts again in the run that is kept. An edit under which that run would choose other tokens is refused; it depends
    on chance or on which position is last. ``kind`` is the class of the result. ``rules`` say how long an answer may be
    and what it may not contain. ``draft`` answers the ids of the text faster than this network, which corrects it.
    """
    transformer, edit = view_of(transformer), edit or {}
    _check(transformer, edit)
    tokenizers.source.check(text)
    source = _fitting(transformer, "text", tokenizers.source.encode(text))
    start, device, recording = tokenizers.target.start, next(transformer.parameters()).device, Recording(edit)
    with at_rest(transformer):
        with attached(transformer, recording):
            memory = transformer.encode(torch.tensor(source, device=device))  # (S, D)

        def read(ids: list[int]) -> Tensor:
            """Read an answer, all positions at once, record every value and return the logits, (T, V)."""
            with attached(transformer, recording):
                return transformer.decode(torch.tensor([start, *ids[:-1]], device=device), memory)

        def answer(begin: Sequence[int]) -> list[int]:
            return _continued(transformer, tokenizers, source, memory, begin, edit, rules)

        if target is not None:
            tokenizers.target.check(target)
            ids = tokenizers.target.encode(target)[1:]
            _fitting(transformer, "target", ids)
        else:
            ids = draft(source) if draft and not begin and not edit else answer(begin)
        logits = read(ids)
        result = kind(transformer, tokenizers, text, source, [start, *ids], edit, rules)
        if target is None and draft and not begin and not edit:
            # Another engine rounds differently and may choose the other of two equally likely tokens. The trace must show
            # the token that the recorded numbers choose.
            said: list[int] = _ruled(result, logits).argmax(-1).tolist()
            right = next((t for t, (own, its) in enumerate(zip(said, ids, strict=True)) if own != its), len(ids))
            again = answer([*ids[:right], *said[right : right + 1]])
            if again != ids:
                logits = read(again)
                result = kind(transformer, tokenizers, text, source, [start, *again], edit, rules)
        if target is None and edit:
            _check_choices(result, logits, len(begin))
    result.values = {**recording.values, "probabilities": logits.float().softmax(-1)}
    return result


def _fitting(transformer: Transformer, what: str, ids: list[int]) -> list[int]:
    longest = transformer.config.max_length
    if len(ids) > longest:
        raise InputError(f"The {what} has {len(ids):,} tokens, but this model takes at most {longest:,}.")
    return ids


def _continued(
    transformer: Transformer,
    tokenizers: Tokenizers,
    source: list[int],
    memory: Tensor,
    begin: Sequence[int],
    edit: Mapping[str, Edit],
    rules: DecodingConfig,
) -> list[int]:
    """Answer greedily after a beginning. A recorder is attached only if there is an edit.

    An edit that is not the same at every position gets all positions at each step, as in the run that is kept.
    """
    reader: Reader = reading(transformer, memory[None]) if everywhere(edit) else WholeReader(transformer, memory)
    # One row is too little work to share between threads, above all on a busy machine.
    with threads_of(1), attached(transformer, Recording(edit)) if edit else nullcontext():
        limit = limits_of(transformer, [source], memory.device, rules)
        return continued(reader, Special.of(tokenizers), limit, begin, rules, source)


def _ruled(trace: Trace, logits: Tensor) -> Tensor:
    """Return the logits of an answer, (T, V), with −∞ for the tokens that the model's rules forbid at each step."""
    rule = LogitsRules(Special.of(trace.tokenizers), trace.rules.but(beam=1), logits.device)
    limit = trace.rules.limit(len(trace.source_ids), trace.transformer.config.max_length)
    return rule.along(logits, trace.output_ids, limit, trace.source_ids)


def _check_choices(trace: Trace, logits: Tensor, forced: int) -> None:
    """Refuse an edit if the logits of the final run, (T, V), would choose another answer after the forced ids."""
    logits = _ruled(trace, logits)
    chosen = logits.gather(1, torch.tensor(trace.output_ids, device=logits.device)[:, None])[:, 0]  # (T,)
    other = [step for step in (logits.amax(-1) - chosen > TIE).nonzero()[:, 0].tolist() if step >= forced]
    if other:
        raise UserError(
            f"Under this edit the model answered {trace.output!r}. When it reads that answer under the same edit, it "
            f"would choose other tokens, first at step {other[0]}: the edit depends on chance or on which position is "
            "last. Let the edit do the same to a position whenever it is called, or give the answer with `target`."
        )


@dataclass(frozen=True)
class Layer:
    """The likeliest next token at every step, computed after one layer."""

    after: int | None  # the number of the layer; None means before the first layer
    ids: Tensor  # (T,)
    probabilities: Tensor  # (T,)


@torch.no_grad()
def logit_lens(trace: Trace) -> list[Layer]:
    """Apply the output projection after every layer of the decoder: the logit lens.

    In a pre-norm model the final norm of the stack is applied first, as it is after the last layer.
    """
    decoder, output = trace.transformer.decoder, trace.transformer.output
    count = len(decoder.layers)
    read = "normed" if trace.transformer.config.embedding_norm else "sum"  # what layer 0 reads
    names = [f"decoder.embedding.{read}", *(f"decoder.layers.{n}.feed_forward_norm.out" for n in range(count))]
    found = []
    for after, name in zip([None, *range(count)], names, strict=True):
        logits = output(decoder.norm(trace[name])).float()  # (T, V)
        best = logits.softmax(-1).max(-1)
        found.append(Layer(after, best.indices, best.values))
    return found
