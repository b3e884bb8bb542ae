"""Write the live page of each shipped model, for the project's site: python docs/site/models.py DIR [NAME …].

DIR.json gets what each model does, which the first page of the site says.
"""

import json
import sys
from pathlib import Path

import seq2see
from seq2see.page.describe import EXAMPLES, what_it_does
from seq2see.page.live import live_page
from seq2see.storage.folder import shipped_models


def main(out: Path, names: list[str]) -> None:
    """Write the pages, which link to the first page of the site."""
    out.mkdir(parents=True, exist_ok=True)
    does = {}
    for name in names:
        model = seq2see.load(name)
        does[name] = what_it_does(model.card)
        page = live_page(name, model, EXAMPLES[name][0], home="../index.html")
        (out / f"{name}.html").write_text(page, encoding="utf-8")
    out.with_suffix(".json").write_text(json.dumps(does, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or shipped_models())
