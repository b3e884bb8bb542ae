"""The shared tasks of SIGMORPHON: train on each set with no options, score its test part, print it beside the tables.

    python -m benchmarks.shared_tasks DIR [--tasks g2p-2021-low,g2p-2020] [--device cuda] [--ensemble 5] [--distil]
        [--jobs 6]

``DIR`` holds the sets as the tasks publish them: g2p-2020/ and g2p-2021/low, high (LANG_train.tsv, _dev, _test),
inflection-2023 (LANG.trn, .dev, .tst). Models and scores go to ``--out``. A set that has its score there is not trained
again, so that a run that was stopped goes on. ``--set`` gives settings as ``seq2see train`` takes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

PATTERNS = ("{}_train.tsv", "{}_dev.tsv", "{}_test.tsv")
TASKS = {
    "g2p-2021-low": ("g2p-2021/low", PATTERNS),
    "g2p-2021-high": ("g2p-2021/high", PATTERNS),
    "g2p-2020": ("g2p-2020", PATTERNS),
    "inflection-2023": ("inflection-2023", ("{}.trn", "{}.dev", "{}.tst")),
}
#: WER on the test sets: the 2021 baseline, an ensemble of ten transducers (Ashby et al., 2021); of 2020 the Transformer
#: baseline and the best submission, IMS (Gorman et al., 2020, tables 2 to 4).
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "g2p-2021-low": {
        "baseline": dict(ady=22, gre=21, ice=12, ita=19, khm=34, lav=55, mlt_latn=19, rum=10, slv=49, wel_sw=10),
    },
    "g2p-2021-high": {"baseline": {"eng_us": 41.94}},
    "g2p-2020": {
        "Transformer": dict(arm=14.22, bul=34.00, fre=6.89, geo=28.00, gre=18.89, hin=9.56, hun=5.33, ice=10.22,
                            kor=43.78, lit=20.67, ady=28.44, dut=15.78, jpn=7.33, rum=12.00, vie=7.56),
        "IMS": dict(arm=12.67, bul=22.22, fre=6.89, geo=24.89, gre=18.67, hin=5.11, hun=5.11, ice=9.33, kor=26.22,
                    lit=20.00, ady=25.33, dut=13.56, jpn=5.33, rum=10.22, vie=1.56),
    },
}  # fmt: skip


class Set(NamedTuple):
    """One language of a task, and its three files."""

    task: str
    language: str
    files: tuple[Path, Path, Path]

    @property
    def name(self) -> str:
        """The name of its folder and of its score."""
        return f"{self.task}-{self.language}"


def sets_in(folder: Path, tasks: list[str], languages: list[str]) -> Iterator[Set]:
    """Find the sets of some tasks."""
    for task in tasks:
        inside, patterns = TASKS[task]
        before, after = patterns[0].split("{}")
        for path in sorted((folder / inside).glob(patterns[0].format("*"))):
            language = path.name.removeprefix(before).removesuffix(after)
            if not languages or language in languages:
                files = [path.with_name(pattern.format(language)) for pattern in patterns]
                yield Set(task, language, (files[0], files[1], files[2]))


def scored(one: Set, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train on one set and score the finished model, the ensemble that taught it, and each of its members alone."""
    import seq2see
    from seq2see.config import parse_overrides

    columns = ("1+2", "3") if one.task.startswith("inflection") else None
    train, dev, test = map(str, one.files)
    chosen, started = parse_overrides(options.set), time.perf_counter()
    model = seq2see.fit(
        train, dev, test, columns=columns, device=options.device, ensemble=options.ensemble,
        distil=options.distil, out=out / one.name, model=chosen["model"], training=chosen["training"],
        seed=options.seed, resume=True, progress=False,
    )  # fmt: skip
    record: dict[str, Any] = {
        "task": one.task, "language": one.language, "seconds": time.perf_counter() - started,
        "settings": {name: getattr(options, name) for name in ("ensemble", "distil", "set", "seed", "device")},
    }  # fmt: skip
    from seq2see.data.pairs import corpus_of
    from seq2see.evaluation.evaluate import evaluate
    from seq2see.training.learner import members_of

    parts = {name: corpus_of(file, columns).pairs for name, file in (("dev", dev), ("test", test))}
    models = {"one" if options.ensemble == 1 else "ensemble": model}
    if options.distil:
        models = {"one": model, "ensemble": seq2see.load(out / f"{one.name}-ensemble", options.device)}
    for name, found in models.items():
        for part, pairs in parts.items():
            scores = found.evaluate(pairs)
            record[f"{name} {part}"] = {
                "pairs": scores.pairs, "right": scores.exact, "WER": 100 - 100 * scores.exact_match,
                "PER": 100 * scores.token_error_rate,
            }  # fmt: skip
    if options.ensemble > 1:  # each member is a model that was trained alone
        several = models["ensemble"]
        each = [
            100 - 100 * evaluate(member, several.tokenizers, parts["test"]).exact_match
            for member in members_of(several.transformer)
        ]
        record["members test"] = {"WER": mean(each), "each": each}
    return record


def table(records: list[dict[str, Any]], task: str) -> Iterator[str]:
    """Write the scores of a task as a table in Markdown, with those that were published."""
    found = [record for record in records if record["task"] == task]
    published = PUBLISHED.get(task, {})
    names = ("one test", "members test", "ensemble test")
    ours = [name for name in names if all(name in record for record in found)]
    right = task.startswith("inflection")
    yield f"| {task}, {'right' if right else 'WER'}, % | {' | '.join([*ours, *published])} | seconds |"
    yield "|---" * (2 + len(ours) + len(published)) + "|"
    rows = []
    for record in found:
        values = [100 - record[name]["WER"] if right else record[name]["WER"] for name in ours]
        values += [column[record["language"]] for column in published.values()]
        rows.append([*values, record["seconds"]])
        yield f"| {record['language']} | {' | '.join(f'{value:.1f}' for value in rows[-1])} |"
    if rows:
        means = [mean(column) for column in zip(*rows, strict=True)]
        yield f"| **mean** | {' | '.join(f'**{value:.2f}**' for value in means[:-1])} | {means[-1]:.0f} |"


def main() -> None:
    """Train and score what is asked for, some sets at a time, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--languages", default="")
    parser.add_argument("--out", type=Path, default=Path("runs/shared-tasks"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ensemble", type=int, default=1)
    parser.add_argument("--distil", action="store_true", help="one model that the ensemble teaches")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="sets that are trained at a time")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tasks = options.tasks.split(",")
    if unknown := [task for task in tasks if task not in TASKS]:
        parser.error(f"There is no task {unknown[0]!r}: {', '.join(TASKS)} were expected.")
    sets = list(sets_in(options.folder, tasks, options.languages.split(",") if options.languages else []))
    if not sets:
        parser.error(f"{options.folder} holds no set of {options.tasks}: the layout is told above.")
    if options.one:
        one = next(entry for entry in sets if entry.name == options.one)
        record = scored(one, options.out, options)
        (options.out / f"{one.name}.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
        return

    # Threads of several processes that wait for each other would take the machine's time.
    share = str(max(1, (os.cpu_count() or 1) // options.jobs))
    environment = {"OMP_NUM_THREADS": share} | os.environ

    def train(one: Set) -> None:
        if (options.out / f"{one.name}.json").exists():
            return
        log = options.out / f"{one.name}.log"
        with log.open("w", encoding="utf-8") as file:
            command = [sys.executable, "-m", "benchmarks.shared_tasks", *sys.argv[1:], "--one", one.name]
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, check=False, env=environment
            )
        if done.returncode:
            print(f"{one.name} failed: {log} says why.", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(train, sets))
    paths = [options.out / f"{one.name}.json" for one in sets]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    for task in tasks:
        print("\n".join(table(records, task)) + "\n")
    sys.exit(0 if len(records) == len(sets) else 1)


if __name__ == "__main__":
    main()
