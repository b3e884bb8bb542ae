"""What each part is given and must return while the shipped model answers, and the known mistakes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2see.learn.network import Built, Function, ToldError, ids_of, shipped

FOLDER = Path(__file__).parent
#: The parts in the order in which they are best written, and what is known to go wrong in each.
MISTAKES: dict[str, dict[str, list[Any]]] = tomllib.loads((FOLDER / "mistakes.toml").read_text(encoding="utf-8"))
PARTS = list(MISTAKES)
TWO = [("1845-01-05", "January 5, 1845"), ("2025-09-03", "September 3, 2025")]
#: Which values of a trace a part returns, one after the other, and how it returns them if not as they are.
NAMES = {
    "softmax": "*.weights", "positions": "*.positions", "attention": "*.z",
    "mask": "decoder.layers.0.self_attention.masked",
    "multi_head": "*_attention.out", "layer_norm": "*_norm.out", "feed_forward": "*.feed_forward.out",
    "encoder_layer": "encoder.*.feed_forward_norm.out", "decoder_layer": "decoder.*.feed_forward_norm.out",
}  # fmt: skip
AS: dict[str, Function] = {"attention": lambda z: z.transpose(0, 1), "mask": lambda scores: scores[0].isfinite()}


class Case(NamedTuple):
    """A value with a name, and how a function is called that should give it."""

    name: str
    call: Callable[[Function], Any]
    expected: Tensor


def texts_of(part: str) -> tuple[str, str]:
    """Return the text of a part up to the end of its docstring, and the body after it."""
    text = (FOLDER / "parts" / f"{part}.py").read_text(encoding="utf-8")
    end = text.index('"""\n', text.index('"""', text.index("\ndef ")) + 3) + 4
    return text[:end], text[end:]


@cache
def written(part: str, old: str = "", new: str = "") -> Function:
    """Return a part as it is solved, or with a change of its body."""
    head, body = texts_of(part)
    names: dict[str, Any] = {}
    exec(head + (body.replace(old, new) if old else body), names)
    return names[part]  # type: ignore[no-any-return]


SOLVED = {part: written(part) for part in PARTS}


def called(given: tuple[Any, ...], function: Function) -> Any:
    """Call a function with copies of some values, which it must leave as they are."""
    copies = [x.clone() if isinstance(x, Tensor) else x for x in given]
    result = function(*copies)
    for number, (before, after) in enumerate(zip(given, copies, strict=True), 1):
        if isinstance(before, Tensor) and not torch.equal(before, after):
            raise ToldError(f"it changes its argument {number} in place, as += and x[…] = do; others still need it.")
    return result


def stepped(function: Function) -> Tensor:
    """Let a training step take two steps, from weights of four fifths, which make mistakes to learn from."""
    weights = {name: (0.8 * x.detach()).requires_grad_() for name, x in shipped().transformer.named_parameters()}
    model, optimiser = Built(SOLVED, weights), torch.optim.SGD(list(weights.values()), lr=0.02)
    losses = [function(model, optimiser, ids_of(TWO, 0), ids_of(TWO, 1), model.letters.pad) for _ in range(2)]
    if None in losses:
        raise ToldError("it returns nothing: the loss was expected, as a number.")
    return torch.cat([torch.tensor([float(x) for x in losses]), *(x.detach().flatten() for x in weights.values())])


@cache
def cases() -> dict[str, list[Case]]:
    """Return what each part is given, and must return, for a date, and for two at once, of which one is padded.

    The values of the first are those that the shipped model records, by their names in its trace.
    """
    calls: dict[str, list[tuple[Any, Any]]] = {part: [] for part in PARTS}

    def recorder(part: str) -> Function:
        def function(*given: Any) -> Any:
            calls[part].append((given, SOLVED[part](*given)))
            return calls[part][-1][1]

        return function

    trace, parts = shipped().trace(TWO[0][0]), {part: recorder(part) for part in PARTS}
    model = Built(parts, weights := dict(shipped().transformer.state_dict()))
    with torch.no_grad():
        model(torch.tensor(trace.source_ids), torch.tensor(trace.target_ids))
        model(ids_of(TWO, 0), ids_of(TWO, 1))
    parts.update(SOLVED)  # what a part was given calls the others, and these shall not be recorded again
    found: dict[str, list[Case]] = {}
    for part, pattern in NAMES.items():
        names, found[part] = trace.match(pattern), []
        for number, (given, value) in enumerate(calls[part]):
            name, recalled = names[number % len(names)], trace[names[number % len(names)]]
            if number >= len(names):
                name, recalled = f"{name} of two dates at once", value
            elif part in AS:
                recalled = AS[part](recalled)
            found[part].append(Case(name, partial(called, given), recalled))
    (scores,), shares = calls["softmax"][0]
    found["softmax"].append(Case("weights, with 1,000 more for each score", partial(called, (scores + 1000,)), shares))
    answer, ids = Built(SOLVED, weights).written, torch.tensor(trace.output_ids[:-1])
    for n in (40, 5):
        name, call = f"the ids of {TWO[0][1]}, if {n} tokens are the longest", partial(answer, TWO[0][0], longest=n)
        found.setdefault("greedy_search", []).append(Case(name, call, ids[:n]))
    found["training_step"] = [
        Case("the losses of two steps, and all weights after them", stepped, stepped(SOLVED["training_step"]))
    ]
    return found
