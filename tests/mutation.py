"""Break the code in many small ways, and see whether the tests notice: `python tests/mutation.py` (in `make verify`).

A mutant is a source file with one small change: another operator or constant, a call or an argument left out, a
condition turned round. It is killed if a test fails. tests/mutants.md lists survivors that no test can or need notice,
each with the reason; they do not count. At least 90 % of the others must die.

Every mutant runs in a fork of a process that has imported PyTorch, so that it takes seconds. A first run without any
mutant notes which tests call which function. A mutant is given the tests that call its function, the quickest first.
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
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
#: The folders of the package, and the package itself.
FOLDERS = sorted({str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")})
#: What a CPU does not run: Triton kernels, and what captures or compiles for a GPU (benchmarks/gpu_check.py tests them).
#: And what only torchrun runs, where a start takes seconds (tests/test_distributed.py tests it).
LEFT_OUT = (
    "model/fast/scan.py", "model/fast/packed.py", "model/fast/loss.py", "model/fast/step_kernels.py",
    "model/fast/choose_kernels.py", "model/fast/add_norm.py", "model/fast/relu_gradient.py", "model/fast/operators.py",
    "model/fast/__init__.py span_attention", "model/fast/__init__.py normed_sum",
    "decoding/graphs.py Captured", "training/learner.py Learner._learn_by_graph",
    "training/distributed.py",
)  # fmt: skip
TESTS = (  # those nearest to the mutated folders first
    "test_model.py", "test_fast.py", "test_search.py", "test_graphs.py", "test_schedule.py", "test_run.py",
    "test_training.py", "test_engines.py", "test_packing.py", "test_folder.py", "test_properties.py", "test_tracer.py",
    "test_api.py", "test_train_file.py", "test_allowed.py", "test_interchange.py", "test_sides.py", "test_shards.py",
    "test_recut.py", "test_export.py", "test_glossary.py", "test_confidence.py", "test_config.py", "test_columns.py",
    "test_pairs.py", "test_data.py", "test_doctor.py", "test_tokenizers.py", "test_text.py", "test_sentences.py",
    "test_texts.py", "test_exact.py", "test_human_dates.py", "test_serve.py", "test_live.py", "test_wire.py",
    "test_trace.py", "test_tables.py", "test_alignment.py", "test_saliency.py", "test_similarity.py", "test_plots.py",
    "test_interchange_out.py", "test_interchange_settings.py", "test_strangers.py", "test_cli.py", "test_predict_file.py",
    "test_evaluate_file.py", "test_parts.py", "test_site.py",
)  # fmt: skip
SLOW = 8.0  # seconds of a test that mutants are not given
MOST = 25.0  # seconds of all tests of one mutant
GOAL = 0.9
BROKEN = 70  # the exit status if a mutant could not be tried

OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Add,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str  # below the package
    where: str  # the function
    lines: tuple[int, int]  # of the outermost function or method; (0, 0) outside of all
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
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            yield other(value=ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Call(args=args, keywords=keywords):
            for index in range(len(keywords)):
                if keywords[index].arg != "strict":
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
        names = [n.name for n in path if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        outer = next((n for n in path if isinstance(n, ast.FunctionDef)), None)
        lines = (0, 0) if outer is None else (outer.lineno, outer.end_lineno or 0)
        for new in changes(node):
            where, (before, after) = ".".join(names) or "module", described(node, new)
            seen[f"{where} {before} {after}"] += 1
            if (count := seen[f"{where} {before} {after}"]) > 1:
                after += f" (#{count})"
            put(holder, name, index, new)
            yield (
                Mutant(file, where, lines, before, after),
                lambda: ast.unparse(ast.fix_missing_locations(tree)),
            )
            put(holder, name, index, node)
        yield from children(node, (*path, node))

    def children(node: ast.AST, path: tuple[ast.AST, ...]) -> Found:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return  # what a message says
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return  # like an assert, it guards what is always so
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


class Noted:
    """Notes how long each test takes, and which functions of the mutated folders it calls, its fixtures included."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, set[str]] = {}
        self.failed: list[str] = []
        self.of_fixture: defaultdict[str, set[str]] = defaultdict(set)
        self.now: set[str] = set()
        self.begins = tuple(str(SOURCE / folder) + os.sep for folder in FOLDERS)

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.begins):
            self.now.add(f"{Path(code.co_filename).relative_to(SOURCE)}:{code.co_firstlineno}")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before, self.now = self.now, set()
        result = yield
        self.of_fixture[fixturedef.argname] |= self.now
        self.now |= before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.now, started = set(), time.perf_counter()
        threading.settrace(self.trace)  # type: ignore[arg-type]
        sys.settrace(self.trace)  # type: ignore[arg-type]
        result = yield
        sys.settrace(None)
        self.seconds[item.nodeid] = time.perf_counter() - started
        self.calls[item.nodeid] = self.now.union(*(self.of_fixture[name] for name in item.fixturenames))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(files: list[str], plugin: object, stop: bool) -> int:
    arguments = [
        "-q",
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


def noted(tests: list[str], jobs: int) -> dict[str, Any]:
    """Run all tests without a mutant, and return what was noted; those of a file again only if something has changed."""
    files = sorted(file for folder in FOLDERS for file in (SOURCE / folder).glob("*.py"))
    source = b"".join(file.read_bytes() for file in files)
    NOTES.mkdir(parents=True, exist_ok=True)
    running: set[int] = set()
    for test in tests:
        digest = hashlib.sha256(source + (ROOT / "tests" / test).read_bytes()).hexdigest()
        path = NOTES / f"{test}.json"
        if path.is_file() and json.loads(path.read_text())["digest"] == digest:
            continue

        def work(test: str = test, digest: str = digest, path: Path = path) -> int:
            found = Noted()
            run_tests([test], found, stop=False)
            calls = {name: sorted(called) for name, called in found.calls.items()}
            note = {"digest": digest, "seconds": found.seconds, "calls": calls, "failed": found.failed}
            path.write_text(json.dumps(note))
            return 0

        if len(running) == jobs:
            running.discard(os.wait()[0])
        print(f"Running {test} without a mutant", flush=True)
        running.add(forked(path.with_suffix(".log"), work))
    while running:
        running.discard(os.wait()[0])
    found = [json.loads((NOTES / f"{test}.json").read_text()) for test in tests]
    return {
        "seconds": {name: took for note in found for name, took in note["seconds"].items()},
        "calls": {name: calls for note in found for name, calls in note["calls"].items()},
        "failed": [name for note in found for name in note["failed"]],
    }


def tests_of(mutant: Mutant, notes: dict[str, Any]) -> list[str]:
    """Return the tests that call the function of a mutant, or any of its file; the quickest first."""
    first, last = mutant.lines
    chosen, seconds = [], 0.0
    for test, took in sorted(notes["seconds"].items(), key=lambda item: item[1]):
        places = (place.rsplit(":", 1) for place in notes["calls"][test])
        # A decorator's line comes before that of its function.
        hit = any(
            file == mutant.file and (not last or first - 3 <= int(line) <= last) for file, line in places
        )
        if hit and took <= SLOW and seconds + took <= MOST and test not in notes["failed"]:
            chosen.append(test)
            seconds += took
    return chosen


def tried(
    mutants: list[tuple[Mutant, str]], notes: dict[str, Any], jobs: int
) -> Iterator[tuple[Mutant, str]]:
    """Run the tests on each mutant; yield it with what became of it."""
    waiting, running = list(reversed(mutants)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant, source = waiting.pop()
            tests = tests_of(mutant, notes)
            if not tests:
                yield mutant, "no test"
                continue
            files = [file for file in TESTS if any(f"tests/{file}::" in test for test in tests)]

            def work(
                mutant: Mutant = mutant,
                source: str = source,
                files: list[str] = files,
                tests: list[str] = tests,
            ) -> int:
                mutated = Mutated(mutant.file, source)
                if mutated.name in sys.modules:
                    put_into(sys.modules[mutated.name], source)
                else:
                    sys.meta_path.insert(0, mutated)
                # The first file is the nearest to the function. Most mutants die there, and the others need not be read.
                parts = [part for part in (files[:1], files[1:]) if part]
                return next(
                    (code for part in parts if (code := run_tests(part, Chosen(tests), stop=True))), 0
                )

            log = NOTES / f"mutant-{len(waiting)}.log"
            limit = time.monotonic() + 30 + 4 * sum(notes["seconds"][test] for test in tests)
            running[forked(log, work)] = (mutant, limit, log)
        time.sleep(0.02)
        for child, (mutant, limit, log) in [*running.items()]:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                log.unlink(missing_ok=True)
                yield (
                    mutant,
                    {0: "survived", 5: "no test", BROKEN: "broken"}.get(code, "killed"),
                )  # 5 is pytest's
            elif time.monotonic() > limit:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield mutant, "timeout"
            else:
                continue
            del running[child]


def listed() -> dict[str, str]:
    """Read tests/mutants.md: the survivors that are expected, each with its reason."""
    text = LISTED.read_text(encoding="utf-8") if LISTED.is_file() else ""
    return dict(re.findall(r"^- `(.+)`\n  (.+)$", text, re.MULTILINE))


def main() -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests import benchmarks, and each other
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--count", type=int, default=300, help="how many mutants are drawn")
    options.add_argument("--all", action="store_true", help="take all mutants")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="", help="mutants whose name contains this text")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = options.parse_args()

    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    files = [str(f.relative_to(SOURCE)) for folder in FOLDERS for f in sorted((SOURCE / folder).glob("*.py"))]
    everything = [m for file in files for m, _ in mutants_of(file) if not m.name.startswith(LEFT_OUT)]
    drawn = [mutant for mutant in everything if asked.only in mutant.name]
    if not asked.all and not asked.only:
        drawn = random.Random(asked.seed).sample(drawn, min(asked.count, len(drawn)))
    wanted = set(drawn)
    sources = {m: write() for file in files for m, write in mutants_of(file) if m in wanted}
    chosen = [(mutant, sources[mutant]) for mutant in drawn]
    warm_up()
    tests = [test for test in TESTS if (ROOT / "tests" / test).is_file()]
    notes = noted(tests, asked.jobs)
    print(
        f"{len(notes['seconds'])} tests, {sum(notes['seconds'].values()):.0f} s; not used: {notes['failed']}",
        flush=True,
    )
    print(f"{len(chosen):,} of {len(everything):,} mutants, seed {asked.seed}", flush=True)

    expected, results, survivors = listed(), defaultdict(Counter), []
    # What is outside of functions takes effect at import. Bodies of functions can be replaced when all is imported, and
    # then a mutant takes less time.
    outside, inside = (
        [found for found in chosen if bool(found[0].lines[1]) == inner] for inner in (False, True)
    )
    fates = chain(tried(outside, notes, asked.jobs), imported(tests), tried(inside, notes, asked.jobs))
    done = 0
    try:
        for done, (mutant, fate) in enumerate(fates, 1):
            results[mutant.file.split("/")[0]][fate] += 1
            if fate not in ("killed", "timeout"):
                survivors.append(mutant.name)
                print(f"{done:4} {fate}: {mutant.name}", flush=True)
    except KeyboardInterrupt:
        print(f"Stopped after {done} mutants.")
    for folder, counts in results.items():
        print(f"{folder:10} {dict(sorted(counts.items()))}")
    dead = sum(counts["killed"] + counts["timeout"] for counts in results.values())
    unknown = [name for name in survivors if name not in expected]
    counted = done - (len(survivors) - len(unknown))
    print(f"{dead} of {done} mutants died, {dead / max(1, done):.1%}")
    print(f"{done - counted} survivors are in {LISTED.name} with a reason, {len(unknown)} are not:")
    for name in unknown:
        print(f"- `{name}`\n  ")
    print(f"score: {dead / max(1, counted):.1%} of the {counted} mutants that a test can notice died")
    return int(dead < GOAL * counted)


if __name__ == "__main__":
    sys.exit(main())
