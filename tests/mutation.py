"""Break the code in many small ways, and see whether the tests notice: `python tests/mutation.py` (in `make verify`).

A mutant is a source file with one small change: another operator or constant, a call or an argument left out, a
condition turned round. It is killed if a test fails, or if mypy or ruff, which `make test` runs too, refuses it.
tests/mutants.md lists survivors that no test can or need notice, each with the reason; they do not count. 90 % of the
others should die. On 2026-11-18 it was 80 % (208 of 260 in four fresh samples, from 68 to 86 %). The run fails below
70 %, which chance hardly reaches with 100 mutants.

Every mutant runs in a fork of a process that has imported PyTorch, so that it takes seconds. A first run without any
mutant notes which tests call which function, also in processes that they start, and what each test and each fixture
costs. A mutant is given the tests that call its function: those of the nearest file first, then the cheapest. One that
survives them is given more of them. Heavy tests, which only `make verify` runs, are not tried: to note what they call
takes too long. All limits are in seconds of processor time, so that a busy machine leaves no test
out. The notes of a test file are kept until it changes; `--anew` makes all of them again.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import chain
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SOURCE, LISTED = ROOT / "src" / "seq2see", ROOT / "tests" / "mutants.md"
NOTES = ROOT / "build" / "mutation"  # which test calls which function, kept until a file changes
BELOW = str(SOURCE) + os.sep
#: The folders of the package, and the package itself.
FOLDERS = sorted({str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")})
#: What a CPU does not run: Triton kernels, and what captures or compiles for a GPU (benchmarks/gpu_check.py tests them).
#: What only torchrun runs, where a start takes seconds (tests/test_distributed.py tests it). And how a picture looks,
#: which people judge: colours, and the places of the boxes and lines of Figure 1.
LEFT_OUT = (
    "kernels/training_kernels.py", "kernels/step_kernels.py",
    "kernels/choose_kernels.py", "kernels/operators.py",
    "decoding/graphs.py Captured", "training/learner.py Learner._learn_by_graph",
    "training/distributed.py",
    "inspection/architecture.py",
    *(f"inspection/style.py {name}" for name in ("module", "new_figure", "new_axes", "dress", "canvas", "line")),
)  # fmt: skip
#: Arguments that no test on a CPU notices: the device is the CPU, UTF-8 is the systems' default, spaces mean nothing in
#: JSON, and the others are how a bar, a picture or a table looks.
NOT_SEEN = {
    "device", "non_blocking", "encoding", "strict", "indent", "show_progress",
    "alpha", "bottom", "box", "capstyle", "color", "colors", "cmap", "edgecolor", "edgecolors", "facecolor", "facecolors",
    "fontfamily", "fontsize", "fontstyle", "fontweight", "frameon", "grid", "ha", "joinstyle", "justify", "labelpad",
    "linestyle", "lw", "linewidth", "linewidths", "loc", "pad", "rotation", "style", "va", "zorder",
}  # fmt: skip
PROSE = 4  # spaces of a text that is a help or a message, which a test need not repeat
#: Test files that tell little about a change of the code: they need a browser, a cluster, the GPU's kernels or minutes,
#: or look at documents.
NOT_USED = {
    "test_page.py", "test_page_file.py", "test_lessons.py", "test_soak.py", "test_distributed.py", "test_readme.py",
    "test_map.py", "test_floors.py", "test_en_fr.py", "test_challenge.py", "test_model_js.py", "test_benchmarks.py",
    "test_deploy.py",
}  # fmt: skip
TESTS = sorted(path.name for path in (ROOT / "tests").glob("test_*.py") if path.name not in NOT_USED)
MOST = 60.0  # seconds of all tests of one mutant; all seconds are of processor time
MOST_AFTER = 240.0  # seconds of those that a survivor is given after them
STILL = 60.0  # seconds of the clock in which a process that does nothing is taken to wait for ever
GOAL, LEAST = 0.9, 0.7  # the share that should die, and the one below which the run fails
FORM = b"2"  # of the notes
DEAD = ("killed", "killed later", "timeout", "refused")
BROKEN = 70  # the exit status if a mutant could not be tried

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Add,
}  # fmt: skip


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str  # below the package
    where: str  # the function
    outer: str  # the outermost function or method; "" outside of all
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """Name it so that the name stays when lines move."""
        return f"{self.file} {self.where}: {self.before} → {self.after}"


Found = Iterator[tuple[Mutant, Callable[[], str]]]


# --- making mutants ------------------------------------------------------------------------------------------------


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""

    def other(**fields: Any) -> ast.AST:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    match node:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITES:
            yield other(ops=[OPPOSITES[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPPOSITES:
            yield other(op=OPPOSITES[type(op)]())
        case ast.AugAssign(op=op, target=target, value=value) if type(op) in OPPOSITES:
            yield other(op=OPPOSITES[type(op)]())
            yield ast.Assign([target], value)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield other(value=not value)
        case ast.Constant(value=int(value)):
            yield other(value=value + 1)
        case ast.Constant(value=float(value)):
            yield other(value=value * 2 + 1)
        case ast.Constant(value=str(value)):
            yield other(value=f"XX{value}")
        case ast.IfExp(body=body, orelse=orelse):
            yield other(body=orelse, orelse=body)
        case ast.If(test=test) | ast.While(test=test):
            yield other(test=ast.UnaryOp(ast.Not(), test))
        # None is as false as False, and mypy refuses it.
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and value.value in (None, False)
        ):
            yield other(value=ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Call(args=args, keywords=keywords):
            for index in range(len(keywords)):
                if keywords[index].arg not in NOT_SEEN:
                    yield other(keywords=[*keywords[:index], *keywords[index + 1 :]])
            if len(args) == 1 and not keywords and not isinstance(args[0], ast.Starred | ast.GeneratorExp):
                yield args[0]
            elif len(args) > 1:
                yield other(args=args[:-1])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        yield node.func.value  # x.contiguous() → x


def mutants_of(file: str) -> Found:
    """Yield all mutants of a file, each with a function that writes its source while it is the one that was yielded."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()

    def visit(holder: ast.AST, name: str, index: int | None, path: tuple[ast.AST, ...]) -> Found:
        node = getattr(holder, name) if index is None else getattr(holder, name)[index]
        names = names_of(path)
        first = next((n for n, one in enumerate(path) if isinstance(one, FUNCTIONS)), None)
        outer = "" if first is None else ".".join(names_of(path[: first + 1]))
        unseen = is_prose(node, holder) or is_for_gpu(node) or is_drawn(node, path)
        for new in changes(node) if not unseen else ():
            where, (before, after) = ".".join(names) or "module", described(node, new)
            seen[f"{where} {before} {after}"] += 1
            if (count := seen[f"{where} {before} {after}"]) > 1:
                after += f" (#{count})"
            put(holder, name, index, new)
            yield (
                Mutant(file, where, outer, getattr(node, "lineno", 0), before, after),
                lambda: ast.unparse(ast.fix_missing_locations(tree)),
            )
            put(holder, name, index, node)
        yield from children(node, (*path, node))

    def children(node: ast.AST, path: tuple[ast.AST, ...]) -> Found:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return  # what a message says
        if isinstance(node, ast.keyword) and node.arg in NOT_SEEN:
            return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params") or is_type_only(node):
                continue
            for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(item, ast.AST) and not is_docstring(item):
                    yield from visit(node, name, index, path)

    def put(holder: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
        if index is None:
            setattr(holder, name, node)
        else:
            getattr(holder, name)[index] = node

    yield from children(tree, ())


def names_of(path: tuple[ast.AST, ...]) -> list[str]:
    """Return the names of the classes and functions on the way to a node."""
    return [node.name for node in path if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]


def described(node: ast.AST, new: ast.AST) -> tuple[str, str]:
    """Say in short what is changed into what."""
    if isinstance(node, ast.If | ast.While) and isinstance(new, ast.If | ast.While):
        node, new = node.test, new.test
    if isinstance(node, ast.Call) and isinstance(new, ast.Call) and new.func is node.func:
        gone = [k for k in node.keywords if k not in new.keywords] or [node.args[-1]]
        return f"{ast.unparse(node.func)}(…)"[-80:], f"without {ast.unparse(gone[0])}"[:80]
    before, after = (" ".join(ast.unparse(ast.fix_missing_locations(x)).split()) for x in (node, new))
    return before if len(before) <= 80 else before[:79] + "…", after if len(after) <= 80 else after[:79] + "…"


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a text alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_prose(node: ast.AST, holder: ast.AST) -> bool:
    """Whether a text is for people: an option's help, or the label of a bar. A list of words that is split is not."""
    is_label = isinstance(holder, ast.Call) and ast.unparse(holder.func).endswith(("add_task", "progress_bar"))
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value.count(" ") >= PROSE or node.value.endswith("…") or is_label)
        and node.value[:1].isalpha()
        and not isinstance(holder, ast.Attribute)
    )


def is_for_gpu(node: ast.AST) -> bool:
    """Whether this does nothing without a GPU: ``torch.cuda.empty_cache()``, "cuda", ``x.cpu()``, ``x.is_cuda and …``."""
    node = node.value if isinstance(node, ast.Expr) else node
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.And) and ast.unparse(node.values[0]).endswith(".is_cuda")
    if isinstance(node, ast.Constant):
        return node.value == "cuda"
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return name.startswith("torch.cuda.") or name.endswith(".cpu")


def is_drawn(node: ast.AST, path: tuple[ast.AST, ...]) -> bool:
    """Whether a number is a place or a size in a picture: it stands in a call of axes or of a figure."""
    return isinstance(node, ast.Constant) and any(
        isinstance(one, ast.Call) and re.match(r"(ax|axes|figure)\b", ast.unparse(one.func)) for one in path
    )


def is_type_only(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING`, or the type of a Literal or a TypeVar, which nothing runs."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Subscript) or (
            isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "TypeVar"
        )
    return False


# --- running tests -------------------------------------------------------------------------------------------------


class Mutated(MetaPathFinder, Loader):
    """Imports one module from another source."""

    def __init__(self, file: str, source: str) -> None:
        self.name = ".".join(["seq2see", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
        self.file, self.source = file, source

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, SOURCE / self.file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, str(SOURCE / self.file), "exec", dont_inherit=True), module.__dict__)


def put_into(module: ModuleType, source: str) -> None:
    """Give the functions of an imported module the bodies and defaults that they have in another source."""
    other = ModuleType(module.__name__)
    other.__file__ = module.__file__
    sys.modules[module.__name__] = other  # dataclasses look their module up
    exec(compile(source, str(module.__file__), "exec", dont_inherit=True), other.__dict__)
    sys.modules[module.__name__] = module

    def plain(found: Any) -> Any:
        found = getattr(found, "fget", None) or getattr(found, "__func__", found)
        return inspect.unwrap(found) if callable(found) else found

    def put(mine: Any, theirs: Any) -> None:
        for name, new in vars(theirs).items():
            old = vars(mine).get(name)
            if inspect.isclass(new) and inspect.isclass(old) and new.__module__ == module.__name__:
                put(old, new)
            elif inspect.isfunction(plain(new)) and inspect.isfunction(plain(old)):
                old, new = plain(old), plain(new)
                if new.__code__.co_freevars != old.__code__.co_freevars:
                    setattr(mine, name, vars(theirs)[name])
                elif new.__module__ == module.__name__ and old.__code__ != new.__code__:
                    old.__code__ = new.__code__
                if new.__module__ == module.__name__ and repr(old.__defaults__) != repr(new.__defaults__):
                    old.__defaults__ = new.__defaults__

    put(module, other)


class Chosen:
    """Runs some tests only, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid])


def spent() -> float:
    """Return the processor time of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


#: What a process that a test starts runs first: it tells which functions it calls.
TELLING = f"""
import atexit, os, sys, threading
called = set()
def trace(frame, event, argument):
    code = frame.f_code
    if code.co_filename.startswith({str(SOURCE) + os.sep!r}):
        called.add(code.co_filename[{len(str(SOURCE)) + 1}:] + ":" + code.co_qualname)
def tell():
    sys.settrace(None)
    with open(os.path.join(os.environ["MUTATION_CALLS"], str(os.getpid())), "w") as file:
        file.write("\\n".join(called))
threading.settrace(trace)
sys.settrace(trace)
atexit.register(tell)
"""


class Noted:
    """Notes what each test and each lasting fixture costs, and which functions of the package they call."""

    def __init__(self, calls: Path) -> None:
        self.seconds: dict[str, float] = {}  # of a test without its lasting fixtures
        self.calls: dict[str, set[str]] = {}
        self.fixtures: dict[str, list[str]] = {}  # of a test: the lasting ones
        self.of_fixture: dict[str, float] = {}
        self.failed: list[str] = []
        self.called_by: defaultdict[str, set[str]] = defaultdict(set)  # a fixture
        self.now: set[str] = set()
        self.lasting = 0.0
        self.told = calls  # the folder of what started processes called

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(BELOW):
            self.now.add(f"{code.co_filename[len(BELOW) :]}:{code.co_qualname}")

    def collect(self) -> None:
        for path in self.told.iterdir():
            self.now |= set(path.read_text().split("\n")) - {""}
            path.unlink()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before, self.now, began, within = self.now, set(), spent(), self.lasting
        result = yield
        self.collect()
        self.called_by[fixturedef.argname] |= self.now
        if fixturedef.scope != "function":
            took = spent() - began
            self.of_fixture[fixturedef.argname] = took - (self.lasting - within)
            self.lasting = within + took
        self.now |= before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.now, self.lasting, began = set(), 0.0, spent()
        threading.settrace(self.trace)  # type: ignore[arg-type]
        sys.settrace(self.trace)  # type: ignore[arg-type]
        result = yield
        sys.settrace(None)
        self.collect()
        self.seconds[item.nodeid] = spent() - began - self.lasting
        self.calls[item.nodeid] = self.now.union(*(self.called_by[name] for name in item.fixturenames))
        self.fixtures[item.nodeid] = [name for name in item.fixturenames if name in self.of_fixture]
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def note(self) -> dict[str, Any]:
        calls = {name: sorted(called) for name, called in self.calls.items()}
        return {"seconds": self.seconds, "calls": calls, "fixtures": self.fixtures, "of_fixture": self.of_fixture,
                "failed": self.failed}  # fmt: skip


def run_tests(files: list[str], plugin: object, stop: bool) -> int:
    arguments = [
        "-q",
        "-m",
        "not heavy",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "--tb=short",
        f"--rootdir={ROOT}",
        *(["-x"] if stop else []),
    ]
    return int(pytest.main([*arguments, *(f"{ROOT}/tests/{file}" for file in files)], plugins=[plugin]))


def forked(log: Path, work: Any) -> int:
    """Do some work in a child process with a session of its own, and return its number."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        os.setsid()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def warm_up() -> None:
    """Import what all tests need, but nothing of ours."""
    import ctranslate2
    import numpy
    import playwright.sync_api
    import sacrebleu
    import safetensors.torch
    import tokenizers
    import torch._dynamo
    import typer

    del ctranslate2, numpy, playwright, sacrebleu, safetensors, tokenizers, typer
    torch.set_num_threads(1)


def imported(tests: list[str]) -> Iterator[tuple[Mutant, str]]:
    """Import the tests, and with them all that they test. There is no mutant to yield."""
    for test in tests:
        importlib.import_module(Path(test).stem)
    yield from ()


def noted(tests: list[str], jobs: int, anew: bool) -> dict[str, dict[str, Any]]:
    """Run all tests without a mutant, and return what was noted of each file; those of a file again if it has changed."""
    NOTES.mkdir(parents=True, exist_ok=True)
    running: set[int] = set()
    for test in tests:
        digest = hashlib.sha256(FORM + (ROOT / "tests" / test).read_bytes()).hexdigest()
        path = NOTES / f"{test}.json"
        if not anew and path.is_file() and json.loads(path.read_text())["digest"] == digest:
            continue

        def work(test: str = test, digest: str = digest, path: Path = path) -> int:
            with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
                (calls := Path(folder) / "calls").mkdir()
                (Path(folder) / "sitecustomize.py").write_text(TELLING)
                os.environ["MUTATION_CALLS"] = str(calls)
                os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT / "src")])
                found = Noted(calls)
                run_tests([test], found, stop=False)
            path.write_text(json.dumps({"digest": digest, **found.note()}))
            return 0

        if len(running) == jobs:
            running.discard(os.wait()[0])
        print(f"Running {test} without a mutant", flush=True)
        running.add(forked(path.with_suffix(".log"), work))
    while running:
        running.discard(os.wait()[0])
    return {test: json.loads((NOTES / f"{test}.json").read_text()) for test in tests}


def near(file: str, tests: list[str]) -> list[str]:
    """Sort test files by how often they name a source file, its folder's names first if they name it nowhere."""
    *folders, stem = Path(file).with_suffix("").parts
    folder = ".".join(["seq2see", *folders])
    named = re.compile(rf"{folder}\.{stem}\b|from {folder} import .*\b{stem}\b|\b{stem}\.")

    def mentions(test: str) -> float:
        text = (ROOT / "tests" / test).read_text(encoding="utf-8")
        return 20 * (stem in test) + len(named.findall(text)) + 0.01 * text.count(folder)

    return sorted(tests, key=mentions, reverse=True)


def tests_of(mutant: Mutant, notes: dict[str, dict[str, Any]], before: frozenset[str]) -> tuple[list[str], float]:
    """Return the tests that call the function of a mutant, or any of its file, and what they cost together.

    ``before`` has the tests that it has survived: it is given others then.
    """
    stem = Path(mutant.file).stem
    # A test reads a constant without calling anything: those of the nearest files are tried, too.
    closest = near(mutant.file, [*notes])[:2] if not mutant.outer else []
    found: list[tuple[bool, float, str, str]] = []
    for file, note in notes.items():
        for test, took in note["seconds"].items():
            places = (place.partition(":")[::2] for place in note["calls"][test])
            hit = file in closest or any(
                where == mutant.file
                and name != "<module>"  # an import alone
                and (not mutant.outer or f"{name}.".replace("<locals>.", "").startswith(f"{mutant.outer}."))
                for where, name in places
            )
            if hit and test not in before and test not in note["failed"]:
                found.append((stem not in file and file not in closest, took, file, test))
    chosen, seconds, ready = list[str](), 0.0, set[tuple[str, str]]()
    for _, took, file, test in sorted(found):
        new = {(file, name) for name in notes[file]["fixtures"][test]} - ready
        cost = took + sum(notes[file]["of_fixture"][name] for _, name in new)
        if seconds + cost <= (MOST_AFTER if before else MOST):
            chosen.append(test)
            seconds += cost
            ready |= new
    return chosen, seconds


def overlaid(folder: Path, file: str, source: str) -> None:
    """Write the package with one other source into a folder, by links: processes that tests start use it."""
    made = folder / "seq2see"
    made.mkdir()
    at, from_ = made, SOURCE
    for part in Path(file).parts:
        for path in from_.iterdir():
            if path.name != part and path.name != "__pycache__":
                (at / path.name).symlink_to(path)
        at, from_ = at / part, from_ / part
        if from_.is_dir():
            at.mkdir()
    at.write_text(source, encoding="utf-8")


def at_work(session: int) -> float:
    """Return the processor time of all processes of a session, with those of them that have ended."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(told[3]) == session:
            total += sum(map(int, told[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


@dataclass
class Attempt:
    """A mutant whose tests run."""

    mutant: Mutant
    limit: float
    log: Path
    folder: Path
    source: str
    tests: Collection[str]  # none if it survived others before: then it is not tried again
    worked: float = 0.0
    since: float = field(default_factory=time.monotonic)  # when it was last seen to work

    def is_over(self, session: int) -> bool:
        """Whether it has worked for too long, or waits for something that does not come."""
        now = at_work(session)
        if now > self.worked + 0.02:
            self.worked, self.since = now, time.monotonic()
        return now > self.limit or time.monotonic() - self.since > STILL


def tried(
    mutants: list[tuple[Mutant, str]], notes: dict[str, dict[str, Any]], jobs: int
) -> Iterator[tuple[Mutant, str]]:
    """Run the tests on each mutant; yield it with what became of it."""
    waiting = [(mutant, source, frozenset[str]()) for mutant, source in reversed(mutants)]
    running = dict[int, Attempt]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant, source, before = waiting.pop()
            tests, seconds = tests_of(mutant, notes, before)
            if not tests:
                yield mutant, "survived" if before else refused(mutant, source) or "no test"
                continue
            files = list(dict.fromkeys(Path(test.partition("::")[0]).name for test in tests))
            folder = Path(tempfile.mkdtemp(prefix="mutation-"))
            overlaid(folder, mutant.file, source)

            def work(
                mutant: Mutant = mutant,
                source: str = source,
                files: list[str] = files,
                tests: list[str] = tests,
                folder: Path = folder,
            ) -> int:
                os.environ["PYTHONPATH"] = str(folder)
                mutated = Mutated(mutant.file, source)
                if mutated.name in sys.modules:
                    put_into(sys.modules[mutated.name], source)
                else:
                    sys.meta_path.insert(0, mutated)
                # The first file is the nearest to the function. Most mutants die there, and the others need not be read.
                parts = [part for part in (files[:1], files[1:]) if part]
                return next((code for part in parts if (code := run_tests(part, Chosen(tests), stop=True))), 0)

            log = NOTES / f"mutant-{len(waiting)}.log"
            more = () if before else tests
            running[forked(log, work)] = Attempt(mutant, 30 + 4 * seconds, log, folder, source, more)
        time.sleep(0.1)
        for child, attempt in [*running.items()]:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                attempt.log.unlink(missing_ok=True)
                # 5 is pytest's status for no test at all.
                killed = "killed" if attempt.tests else "killed later"
                fate = {0: "survived", 5: "no test", BROKEN: "broken"}.get(code, killed)
                if fate == "survived" and attempt.tests:
                    fate = refused(attempt.mutant, attempt.source)
                if fate:
                    yield attempt.mutant, fate
                else:
                    waiting.append((attempt.mutant, attempt.source, frozenset(attempt.tests)))
            elif attempt.is_over(child):
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield attempt.mutant, "timeout"
            else:
                continue
            shutil.rmtree(attempt.folder, ignore_errors=True)
            del running[child]


def faults(file: str, source: str) -> Counter[str]:
    """Return what mypy and ruff find in another source of a file, without the places."""
    path = SOURCE / file
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        (other := Path(folder) / "other.py").write_text(source, encoding="utf-8")
        mypy = ["mypy", "--cache-dir", NOTES / "types", "--no-pretty", "--shadow-file", path, other, path]
        ruff = ["ruff", "check", "--select", "F,B", "--output-format", "concise", other]
        found = [
            subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True).stdout
            for command in (mypy, ruff)
        ]
    return Counter(re.findall(r"^\S+?:\d+:(?:\d+:)? (.+)", "".join(found), re.MULTILINE))


def refused(mutant: Mutant, source: str) -> str:
    """Return "refused" if mypy or ruff finds more in a mutant than in its file."""
    return "refused" if faults(mutant.file, source) - own_faults(mutant.file) else ""


@cache
def own_faults(file: str) -> Counter[str]:
    """Return what they find in the file itself, whose comments would tell them what to let pass."""
    return faults(file, ast.unparse(ast.parse((SOURCE / file).read_text(encoding="utf-8"))))


def listed() -> dict[str, str]:
    """Read tests/mutants.md: the survivors that are expected, each with its reason."""
    text = LISTED.read_text(encoding="utf-8") if LISTED.is_file() else ""
    return dict(re.findall(r"^- `(.+)`\n  (.+)$", text, re.MULTILINE))


def place_of(mutant: Mutant) -> str:
    """Name the line of a mutant."""
    return f"src/seq2see/{mutant.file}:{mutant.line}"


def main() -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests import benchmarks, and each other
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=100, help="how many mutants are drawn")
    options.add_argument("--all", action="store_true", help="take all mutants")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="", help="mutants whose name contains this text")
    options.add_argument("--tests", default=",".join(TESTS), help="test files, separated by commas")
    options.add_argument(
        "--near", type=int, default=0, help="use only so many test files for each source file: a quick first look"
    )
    options.add_argument("--anew", action="store_true", help="note again which tests call what")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = options.parse_args()

    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    files = [str(f.relative_to(SOURCE)) for folder in FOLDERS for f in sorted((SOURCE / folder).glob("*.py"))]
    everything = [m for file in files for m, _ in mutants_of(file) if not m.name.startswith(LEFT_OUT)]
    for gone in listed().keys() - {mutant.name for mutant in everything}:
        print(f"{LISTED.name} lists a mutant that is not there any more: {gone}", flush=True)
    drawn = [mutant for mutant in everything if asked.only in mutant.name]
    if not asked.all and not asked.only:
        drawn = random.Random(asked.seed).sample(drawn, min(asked.count, len(drawn)))
    wanted = set(drawn)
    changed = sorted({mutant.file for mutant in drawn})
    sources = {m: write() for file in changed for m, write in mutants_of(file) if m in wanted}
    chosen = [(mutant, sources[mutant]) for mutant in drawn]
    warm_up()
    tests = asked.tests.split(",")
    if asked.near:
        wanted_files = {file for mutant in drawn for file in near(mutant.file, tests)[: asked.near]}
        tests = [test for test in tests if test in wanted_files]
    notes = noted(tests, asked.jobs, asked.anew)
    costs = [one for note in notes.values() for name in ("seconds", "of_fixture") for one in note[name].values()]
    print(
        f"{sum(len(note['seconds']) for note in notes.values()):,} tests, {sum(costs):,.0f} s of processor time; "
        f"not used: {[test for note in notes.values() for test in note['failed']]}",
        flush=True,
    )
    print(f"{len(chosen):,} of {len(everything):,} mutants, seed {asked.seed}", flush=True)

    expected, results, survivors = listed(), defaultdict(Counter), []
    # What is outside of functions takes effect at import. Bodies of functions can be replaced when all is imported, and
    # then a mutant takes less time.
    outside, inside = ([found for found in chosen if bool(found[0].outer) == inner] for inner in (False, True))
    fates = chain(tried(outside, notes, asked.jobs), imported(tests), tried(inside, notes, asked.jobs))
    done = 0
    try:
        for done, (mutant, fate) in enumerate(fates, 1):
            results[mutant.file.split("/")[0]][fate] += 1
            if fate not in DEAD:
                survivors.append(mutant)
                print(f"{done:4} {fate}: {place_of(mutant)} {mutant.name}", flush=True)
    except KeyboardInterrupt:
        print(f"Stopped after {done} mutants.")
    for folder, counts in results.items():
        print(f"{folder:10} {dict(sorted(counts.items()))}")
    dead = sum(counts[fate] for counts in results.values() for fate in DEAD)
    unknown = [mutant for mutant in survivors if mutant.name not in expected]
    counted = done - (len(survivors) - len(unknown))
    print(f"{dead} of {done} mutants died, {dead / max(1, done):.1%}")
    print(f"{done - counted} survivors are in {LISTED.name} with a reason, {len(unknown)} are not:")
    for mutant in unknown:
        print(f"{place_of(mutant)}\n- `{mutant.name}`\n  ")
    print(
        f"score: {dead / max(1, counted):.1%} of the {counted} mutants that a test can notice died ({GOAL:.0%} wanted)"
    )
    return int(dead < LEAST * counted)


if __name__ == "__main__":
    sys.exit(main())
