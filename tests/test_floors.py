"""Import downward only: no cycles, no siblings, function-level imports counted."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import seq2see

ROOT = Path(seq2see.__file__).parent

#: From the ground up. A module may import what stands on a lower line, or what its own package allows below.
FLOORS = [
    ["errors"],
    ["config"],
    ["text", "metrics"],
    ["model"],
    ["data", "folder"],
    ["decoding"],
    ["evaluate", "inspection", "export"],
    ["training"],
    ["seq2seq"],
    ["serve", "benchmarks"],
    ["cli"],
    ["__main__"],
]


def floor_of(name: str) -> int:
    return next(number for number, names in enumerate(FLOORS) if name in names)


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__") or "__init__"] = path
    return found


def imports_of(path: Path, everything: dict[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] != "seq2see":
                continue
            inner = name.removeprefix("seq2see.")
            while inner not in everything and "." in inner:
                inner = inner.rpartition(".")[0]
            if inner in everything:
                found.add(inner)
    return found


def test_every_module_imports_downward_only() -> None:
    everything = modules()
    wrong = []
    for name, path in everything.items():
        if name == "__init__":
            continue
        for imported in imports_of(path, everything):
            top, below = name.split(".")[0], imported.split(".")[0]
            if top != below and floor_of(below) >= floor_of(top):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_there_are_no_cycles() -> None:
    everything = modules()
    graph = {
        name: imports_of(path, everything) - {name} for name, path in everything.items() if name != "__init__"
    }
    done: set[str] = set()
    while ready := [
        name for name, below in graph.items() if name not in done and below & graph.keys() <= done
    ]:
        done.update(ready)
    assert set(graph) == done, f"in a cycle: {sorted(set(graph) - done)}"


def test_the_model_is_read_upwards() -> None:
    everything = modules()
    order = [
        "sublayers", "masks", "kernels", "fused", "attention", "positions", "encoder", "decoder", "transformer",
        "weights",
    ]  # fmt: skip
    for index, name in enumerate(order):
        below = {f"model.{other}" for other in order[:index]}
        assert {
            i for i in imports_of(everything[f"model.{name}"], everything) if i.startswith("model.")
        } <= below


#: What is looked up by name when it is first used, and why: each is a door that nothing below needs to be open.
BY_NAME = {
    "__init__": "the package hands out its names on first use",
    "cli.__init__": "a command is imported when it is called",
    "seq2seq": "answering through CTranslate2 needs no torch",
    "inspection.trace": "a notebook asks a trace for the page",
}


def test_what_is_imported_by_name_is_known() -> None:
    everything = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in ROOT.rglob("*.py")
    }
    assert {
        name for name, text in everything.items() if re.search(r"import_module\((?!\"transformers\")", text)
    } == set(BY_NAME)
