"""``python -m benchmarks.examples DIR [--model FOLDER]``: tasks of other people, solved from a few examples.

DIR has files of tasks, one a line: {"name", "about", "pairs": [[input, output], …]}. The first pairs are shown; a task is
solved if all other rows are right, compared without case and outer blanks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from seq2see.errors import UserError
from shipped.examples.answers import ORDERS, load, read_tasks, scores

SHOWN = (1, 2, 3, 5)


def main() -> None:
    """Print a table for each number of examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path, metavar="DIR", help="folder with .jsonl files")
    parser.add_argument("--model", type=Path, required=True, help="folder that shipped.examples.train wrote")
    parser.add_argument("--orders", type=int, default=ORDERS, help="orders of the examples that vote")
    asked = parser.parse_args()
    tasks = read_tasks(asked.tasks)
    if not tasks:
        raise UserError(f"{asked.tasks} has no .jsonl file: a folder with files of tasks was expected.")
    model, about = load(asked.model)
    print(f"{model.config.parameters:,} parameters, {about.get('tasks', 0):,} made tasks, {asked.orders} orders vote")
    for shown in SHOWN:
        start = time.perf_counter()
        found = scores(model, tasks, shown, asked.orders)
        seconds = (time.perf_counter() - start) / max(1, found["all"]["tasks"])
        print(f"\n{shown} example{'s' if shown > 1 else ''}, {seconds:.2f} s a task")
        for name, line in found.items():
            print(f"  {name:14} {line['tasks']:4} tasks  solved {line['solved']:5.1f} %  rows {line['rows']:5.1f} %")
        print(f"  answered at 95 % precision: {found['all']['answered at 95 %']:.1f} %")


if __name__ == "__main__":
    main()
