"""Other people's tasks: train on each set with no options, score it, and print it beside the published scores.

    python -m benchmarks.suite DIR [--sets 'logic-*,uspto-50k'] [--part test] [--device cuda] [--jobs 16] [--budget 10m]
        [--ensemble 5 [--distil]] [--set KEY=VALUE] [--out runs/suite]

``DIR`` holds a folder for each set, with train.tsv, dev.tsv, test.tsv and metric.txt, and the suite's score.py; or the
files of SIGMORPHON's shared tasks: g2p-2020/LANG_train.tsv, g2p-2021/low/…, inflection-2023/LANG.trn. Three sets are made
here: made-json, made-addition, made-names. Models and scores go to ``--out``. A set that has its score there is not
trained again, so that a run that was stopped goes on. The default part is dev: a test is scored once. A default budget
is as long as if each training ran alone: it is multiplied by the trainings that share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

WORDS = ("{}_train.tsv", "{}_dev.tsv", "{}_test.tsv")
SHARED = {
    "g2p-2021-low": ("g2p-2021/low", WORDS),
    "g2p-2021-high": ("g2p-2021/high", WORDS),
    "g2p-2020": ("g2p-2020", WORDS),
    "inflection-2023": ("inflection-2023", ("{}.trn", "{}.dev", "{}.tst")),
}
#: The score of each metric that the suite's score.py prints.
SCORES = {"exact": "exact", "bleu": "bleu4", "chrf": "chrf2", "per": "token_error_rate", "f1": "morph_f1"}
MADE = {"made-json": 4000, "made-addition": 10_000, "made-names": 250}  # training pairs
HELD_OUT = 400
NAMES = (
    "Ada Adler Bell Bill Brown Carla Costa Dan Diaz Elena Evans Felix Ford Grace Grant Haas Hugo Ines Ito Jan Jones Kate "
    "Khan Lopez Luis Maja Meyer Nora Novak Okafor Oscar Park Petra Rita Ruiz Sato Sven Tara Tran Vera Wolf Yuki Zoe"
)
KEYS = "id name city price color size year team owner state"


class Set(NamedTuple):
    """A set: its three files, the columns of an inflection task, and how it is scored."""

    name: str
    files: dict[str, Path]  # train, dev and test
    columns: tuple[str, str] | None = None
    metric: str = "exact"
    scorer: Path | None = None


def sets_in(folder: Path, out: Path) -> Iterator[Set]:
    """Find all sets of a folder, and those that are made here."""
    for path in sorted(folder.glob("*/train.tsv")):
        inside, scorer = path.parent, folder / "score.py"
        files = {part: inside / f"{part}.tsv" for part in ("train", "dev", "test")}
        metric = (inside / "metric.txt").read_text().strip()
        yield Set(inside.name, files, None, metric, scorer if scorer.is_file() else None)
    for task, (where, patterns) in SHARED.items():
        before, after = patterns[0].split("{}")
        for first in sorted((folder / where).glob(patterns[0].format("*"))):
            language = first.name.removeprefix(before).removesuffix(after)
            found = [first.with_name(pattern.format(language)) for pattern in patterns]
            files = dict(zip(("train", "dev", "test"), found, strict=True))
            yield Set(f"{task}-{language}", files, ("1+2", "3") if task.startswith("inflection") else None)
    for name in MADE:
        yield Set(name, {part: out / "made" / f"{name}-{part}.tsv" for part in ("train", "dev", "test")})


def made(name: str, drawn: Random) -> tuple[str, str]:
    """Make one pair of a made set."""
    if name == "made-addition":
        a, b = drawn.randrange(1000), drawn.randrange(1000)
        return f"{a}+{b}", str(a + b)
    if name == "made-names":
        names = NAMES.split()
        title, first, last = drawn.choice(["", "Dr. ", "Prof. "]), drawn.choice(names), drawn.choice(names)
        first += drawn.choice(["", f" {drawn.choice('ABCDEFGHJKLMNOPRSTW')}."])
        return f"{title}{first} {last}", f"{last}, {first}"
    keys = sorted(drawn.sample(KEYS.split(), 5))
    values = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=drawn.randint(2, 9))) for _ in keys]
    rows = [f'"{key}": "{value}"' for key, value in zip(keys, values, strict=True)]
    return "{" + ", ".join(drawn.sample(rows, len(rows))) + "}", ",".join(values)


def write_made(one: Set) -> None:
    """Write the files of a made set, the same each time; no source is in two of them."""
    drawn, pairs = Random(one.name), dict[str, str]()
    while len(pairs) < MADE[one.name] + 2 * HELD_OUT:
        pairs.update([made(one.name, drawn)])
    rows = [f"{source}\t{target}\n" for source, target in pairs.items()]
    one.files["train"].parent.mkdir(parents=True, exist_ok=True)
    cuts = {"dev": rows[:HELD_OUT], "test": rows[HELD_OUT : 2 * HELD_OUT], "train": rows[2 * HELD_OUT :]}
    for part, some in cuts.items():
        one.files[part].write_text("".join(some), encoding="utf-8")


def trained(one: Set, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train on one set, and score the finished model on a part."""
    import seq2see
    from seq2see.config import parse_overrides
    from seq2see.data.pairs import corpus_of
    from seq2see.data.recipe import MINUTES

    if one.name in MADE:
        write_made(one)
    chosen, started = parse_overrides(options.set), time.perf_counter()
    budget = options.budget or 60.0 * options.jobs * MINUTES["cuda" if "cuda" in options.device else "cpu"]
    model = seq2see.fit(
        str(one.files["train"]), str(one.files["dev"]), str(one.files["test"]), columns=one.columns,
        device=options.device, ensemble=options.ensemble, distil=options.distil, out=out / one.name,
        budget=None if "steps" in chosen["training"] else budget, tokenizer=options.tokenizer, preset=options.preset,
        model=chosen["model"], training=chosen["training"], seed=options.seed, resume=True, progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    pairs = corpus_of(str(one.files[options.part]), one.columns).pairs
    answers = [answer.output or "" for answer in model.answers([source for source, _ in pairs], beam=options.beam)]
    right = sum(answer == target for answer, (_, target) in zip(answers, pairs, strict=True))
    record = {
        "set": one.name, "part": options.part, "metric": one.metric, "exact": 100 * right / len(pairs),
        "train seconds": seconds, "steps": model.config.training.steps, "parameters": model.config.model.parameters,
    }  # fmt: skip
    if one.scorer is not None:
        written = out / f"{one.name}.{options.part}.txt"
        written.write_text("".join(f"{answer}\n" for answer in answers), encoding="utf-8")
        command = [sys.executable, str(one.scorer), one.name, str(written), "--split", options.part]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        record["scores"] = {name: float(value) for name, value in map(str.split, told.splitlines())}
    return record


def score_of(record: dict[str, Any]) -> float:
    """Return the score of a record by its metric, as a percentage."""
    found = record.get("scores", {}).get(SCORES[record["metric"]])
    return float(record["exact"]) if found is None else 100 * float(found)


def table(records: list[dict[str, Any]]) -> Iterator[str]:
    """Write the scores as a table in Markdown, with those that were published."""
    published = tomllib.loads(Path(__file__).with_name("published.toml").read_text())
    yield "| set | metric | ours | plain Transformer | best from scratch | seconds |"
    yield "|---" * 6 + "|"
    for record in records:
        known = published.get(record["set"], {})
        others = " | ".join(str(known.get(name, "–")) for name in ("transformer", "best"))
        ours = f"{score_of(record):.1f} ({record['part']})"
        yield f"| {record['set']} | {record['metric']} | {ours} | {others} | {record['train seconds']:.0f} |"


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Read the options."""
    from seq2see.data.recipe import seconds_in

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--sets", default="*", help="names or patterns")
    parser.add_argument("--part", choices=("dev", "test"), default="dev")
    parser.add_argument("--out", type=Path, default=Path("runs/suite"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", type=seconds_in, help="of each training, as it runs here")
    parser.add_argument("--jobs", type=int, default=1, help="sets that are trained at a time")
    parser.add_argument("--ensemble", type=int, default=1)
    parser.add_argument("--distil", action="store_true", help="one model that the ensemble teaches")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer")
    parser.add_argument("--preset")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Train and score what is asked for, some sets at a time, each in a process of its own."""
    options = options_of(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = options.sets.split(",")
    sets = [one for one in sets_in(options.folder, options.out) if any(fnmatch(one.name, name) for name in wanted)]
    if not sets:
        print(f"{options.folder} has no set {options.sets!r}: `--help` tells the layout.", file=sys.stderr)
        return 2
    if options.one:
        one = next(entry for entry in sets if entry.name == options.one)
        record = trained(one, options.out, options)
        (options.out / f"{one.name}.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
        return 0
    # Threads of several processes that wait for each other would take the machine's time.
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.jobs))} | os.environ

    def train(one: Set) -> None:
        if (options.out / f"{one.name}.json").exists():
            return
        with (options.out / f"{one.name}.log").open("w", encoding="utf-8") as log:
            command = [sys.executable, "-m", "benchmarks.suite", *arguments, "--one", one.name]
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False, env=environment)
        if done.returncode:
            print(f"{one.name} failed: {options.out / one.name}.log says why.", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(train, sets))
    paths = [options.out / f"{one.name}.json" for one in sets]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    print("\n".join(table(records)))
    return 0 if len(records) == len(sets) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
