"""Imports of every kind go downward only, without cycles and without siblings.

An import inside a function or under ``TYPE_CHECKING`` is an arrow, and so is an import by name. A text such as
``"seq2see.page.wire"`` is an arrow to that module wherever it stands, so tables of names count. The text
``f"seq2see.cli.{name}"`` is an arrow to every module of that folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

import seq2see

ROOT = Path(seq2see.__file__).parent

#: From the ground up. A module may import from lower lines and from its own folder. ``seq2see`` is the package's own
#: ``__init__``, which hands out the public names.
FLOORS = [
    ["errors", "stopping"],
    ["files", "machine"],
    ["config"],
    ["devices"],
    ["tokenizers", "model"],
    ["kernels"],
    ["storage", "data", "tasks"],
    ["decoding"],
    ["evaluation", "interchange", "documents"],
    ["inspection"],
    ["answering"],
    ["page"],
    ["seq2seq"],
    ["training", "by_example"],
    ["seq2see"],
    ["serve", "learn", "sklearn"],
    ["cli"],
    ["__main__"],
]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the file of each module: ``model.attention``; a folder's name stands for its ``__init__``."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__") or "seq2see"] = path
    return found


def imports_of(name: str, path: Path, everything: Mapping[str, Path]) -> set[str]:
    """Return the modules of the package that a file imports in any way."""
    found: set[str] = set()
    within = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            above = [part for part in within[: len(within) - node.level + 1] if part != "seq2see"]
            start = ".".join(["seq2see", *above, *([node.module] if node.module else [])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A docstring or a message is not the name of a module: it does not consist of words and dots alone.
            if re.fullmatch(r"seq2see(\.\w+)*\.", node.value):  # the beginning of a name that is put together
                start = node.value.removeprefix("seq2see.")
                found |= {module for module in everything if module.startswith(start) and module != "seq2see"}
                continue
            # A file such as "seq2see.json" is no module either.
            named = re.fullmatch(r"seq2see\.(\w+)(\.\w+)*", node.value)
            names = [node.value] if named and _is_top(named[1], everything) else []
        elif called(node) and isinstance(node.args[0], ast.Constant):
            names = [str(node.args[0].value)]
        else:
            continue
        for full in names:
            if full.split(".")[0] == "seq2see":
                found |= nearest(full.removeprefix("seq2see").removeprefix("."), everything)
    return found - {name}


def _is_top(name: str, everything: Mapping[str, Path]) -> bool:
    return any(module.split(".")[0] == name for module in everything)


def called(node: ast.AST) -> TypeGuard[ast.Call]:
    """Say whether a node calls a function that imports by name."""
    function = getattr(node, "func", None)
    name = getattr(function, "id", getattr(function, "attr", ""))
    return isinstance(node, ast.Call) and name in {"import_module", "__import__"}


def nearest(name: str, everything: Mapping[str, Path]) -> set[str]:
    """Return the module that holds a name: a name of the package itself is in its ``__init__``."""
    while name and name not in everything:
        name = name.rpartition(".")[0]
    return {name or "seq2see"}


def arrows(root: Path) -> dict[str, set[str]]:
    everything = modules(root)
    return {name: imports_of(name, path, everything) for name, path in everything.items()}


@cache
def our_arrows() -> dict[str, set[str]]:
    return arrows(ROOT)


def between_folders(graph: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return the arrows between folders; a module at the top counts as a folder."""
    found: dict[str, set[str]] = {}
    for name, below in graph.items():
        top = name.split(".")[0]
        found.setdefault(top, set()).update({other.split(".")[0] for other in below} - {top})
    return found


def in_cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Return what is in a cycle or above one: what remains after taking away, again and again, what imports nothing."""
    done: set[str] = set()
    while ready := [name for name, below in graph.items() if name not in done and below <= done]:
        done.update(ready)
    return sorted(set(graph) - done)


def upward(graph: Mapping[str, set[str]]) -> list[str]:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    return [
        f"{top} imports {below}"
        for top, belows in between_folders(graph).items()
        for below in belows
        if floor[below] >= floor[top]
    ]


def test_every_folder_has_a_floor_and_every_floor_a_folder() -> None:
    assert sorted(name for names in FLOORS for name in names) == sorted(between_folders(our_arrows()))


def test_every_module_imports_downward_only() -> None:
    assert not upward(our_arrows())


def test_there_are_no_cycles() -> None:
    graph = our_arrows()
    assert not in_cycles(graph)
    assert not in_cycles(between_folders(graph))


def test_the_model_is_read_upwards() -> None:
    graph = our_arrows()
    order = ["masks", "sublayers", "attention", "positions", "encoder", "decoder", "transformer"]
    for index, name in enumerate(order):
        assert graph[f"model.{name}"] <= {"config", *(f"model.{other}" for other in order[:index])}


#: The files that import a module whose name is not written in the call. Each takes it from a table or a folder, and the
#: names there are arrows.
COMPUTED = {"seq2see", "cli"}


def test_names_of_modules_are_computed_in_two_places_only() -> None:
    found = set()
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if called(node) and not isinstance(node.args[0], ast.Constant):
                found.add(name)
    assert found == COMPUTED


# --- the test itself: each way to import is seen -------------------------------------------------------

WAYS = {
    "plain": "from seq2see.serve.app import create_app",
    "module": "import seq2see.serve.app",
    "folder": "from seq2see.serve import app",
    "relative": "from ..serve import app",
    "function": "def f():\n    from seq2see.serve.app import create_app",
    "types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import seq2see.serve.app",
    "by name": 'import importlib\nimportlib.import_module("seq2see.serve.app")',
    "by table": 'HOMES = {"create_app": "seq2see.serve.app"}',
    "put together": 'def f(name):\n    return __import__(f"seq2see.serve.{name}")',
    "added": 'def f(name):\n    return __import__("seq2see.serve." + name)',
}


@pytest.mark.parametrize("way", WAYS)
def test_an_upward_import_is_seen(way: str, tmp_path: Path) -> None:
    for name in ("serve", "page"):
        (tmp_path / name).mkdir()
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "serve/app.py").write_text("from seq2see.page.wire import packed")
    (tmp_path / "page/wire.py").write_text(WAYS[way])
    graph = arrows(tmp_path)
    assert graph["page.wire"] == {"serve.app"}
    assert upward(graph) == ["page imports serve"]
    assert in_cycles(graph) == ["page.wire", "serve.app"]
    assert in_cycles(between_folders(graph)) == ["page", "serve"]


def test_the_package_itself_is_above_what_it_hands_out(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('HOMES = {"load": "seq2see.seq2seq"}')
    for text in ("from seq2see import load", "import seq2see", '__import__("seq2see")', "from . import load"):
        (tmp_path / "seq2seq.py").write_text(text)
        assert in_cycles(arrows(tmp_path)) == ["seq2see", "seq2seq"]


def test_a_circle_of_folders_without_a_circle_of_files_is_seen(tmp_path: Path) -> None:
    for name in ("serve", "page"):
        (tmp_path / name).mkdir()
    (tmp_path / "serve/app.py").write_text("import seq2see.page.wire")
    (tmp_path / "page/wire.py").write_text("")
    (tmp_path / "page/other.py").write_text("import seq2see.serve.guard")
    (tmp_path / "serve/guard.py").write_text("")
    assert not in_cycles(arrows(tmp_path))
    assert in_cycles(between_folders(arrows(tmp_path))) == ["page", "serve"]
