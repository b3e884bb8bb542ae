"""A model for the pages and programs of others: an ES module, its types, the weights, an example."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from seq2see.documents import languages
from seq2see.errors import UserError
from seq2see.evaluation.confidence import Confidence
from seq2see.files import read_text, whole_or_nothing
from seq2see.interchange.checks import made_up
from seq2see.page import STATIC, live
from seq2see.page.describe import describe_model
from seq2see.page.single_file import bare
from seq2see.storage.folder import CARD
from seq2see.tasks.human_dates import NAMES
from seq2see.tokenizers.folding import without_accents

WEB = STATIC / "web"
#: The modules that seq2see.js is made of, each after those that it imports. The page has the first ten too.
MODULES = (
    "tensors.js", "fast.js", "model.js", "weights.js", "tokenizer.js", "sentencepiece.js", "reading.js", "search.js",
    "reader.js", "sentences.js", "web/human.js", "web/confidence.js", "web/answering.js", "web/load.js",
)  # fmt: skip
ABOUT, WEIGHTS = "model.json", "model.safetensors"
CREDITS = "credits.txt"  # the sources of the training data, if their licence asks for it
INPUTS = 32  # generated texts for the check
SECONDS = 600  # limit of the check in Node
LARGEST_CREDITS = 2**20
#: The script that Node runs: it prints the folder's answers to some texts.
TRIED = """
import { readFileSync } from "node:fs";
const { folder, texts } = JSON.parse(readFileSync(0, "utf-8"));
const { load } = await import(`${folder}seq2see.js`);
const model = await load(folder);
const found = [];
for (const text of texts) found.push((await model.answer(text)).output);
console.log(JSON.stringify(found));
"""
README = """# {name}, as a module

`seq2see.js` runs the model in a page or in Node (18 or newer). It needs no server and no package, and sends nothing
anywhere.

```js
import {{ load }} from "./seq2see.js";

const model = await load(); // this folder; or load("address/of/the/folder")
const {{ output, confidence, error }} = await model.answer({example});
```

`seq2see.d.ts` has all options and what an answer holds. `index.html` is an example: serve this folder
(`python3 -m http.server`) and open it. The model works in a worker, where there is one. A page with a content security
policy needs `'wasm-unsafe-eval'` in `script-src`; without it the model is slower.
{field}
The files: `{weights}` has the weights, `{about}` all else that is known of the model; `card.md` says how good it is.
"""
FIELD = """
`human-date.js` is a form field that reads dates as people write them, and sends them as `1845-01-05`:

```html
<script type="module" src="human-date.js"></script>
<label for="born">Birthday</label> <human-date id="born" name="born" required></human-date>
```
"""


class Model(live.Model, Protocol):
    """The parts of a ``Seq2Seq`` that are needed here; the class itself is on a higher floor."""

    @property
    def confidence(self) -> Confidence | None:
        """How sure its answers are."""


#: Answers texts; None for a text that is refused.
Answers = Callable[[Sequence[str]], list[str | None]]


def export(out: Path, name: str, model: Model, answers: Answers, bits: int = 32, inputs: Sequence[str] = ()) -> str:
    """Write the folder, whole or not at all, and return a message: its size, and how many answers in Node agree.

    Weights that a folder has in eight bits stay so. Where Node is installed it answers ``inputs``, and must do so as the
    model does, unless weights were rounded to fewer ``bits``.
    """
    why = live.why_not(model.tokenizers, model.config.decoding, model.config.model.positions)
    if why is not None:
        raise UserError(f"{name} cannot be written as a module: {why}. `--to onnx` is another way.")
    weights = live.weights_in(model, 8 if live.is_rounded(model) else bits)
    about = described(name, model)
    texts = list(inputs) or about["about"]["examples"] or _drawn(model)
    with whole_or_nothing(out) as place:
        (place / WEIGHTS).write_bytes(weights.file)
        _write(place / ABOUT, json.dumps(about, ensure_ascii=False, separators=(",", ":")))
        for file, text in program(about["task"] == "human-dates").items():
            _write(place / file, text)
        field = FIELD if about["task"] == "human-dates" else ""
        example = json.dumps(texts[0], ensure_ascii=False)
        said = README.format(name=name, example=example, field=field, weights=WEIGHTS, about=ABOUT)
        _write(place / "README.md", said)
        _write(place / CARD, model.card or f"# {name}\n")
        if model.path is not None and (model.path / CREDITS).is_file():
            _write(place / CREDITS, read_text(model.path / CREDITS, LARGEST_CREDITS))
        size = sum(file.stat().st_size for file in place.iterdir()) / 1e6
        return f"{size:,.1f} MB; {_tried(place, texts, answers, exact=weights.network is model.network.inner())}"


def program(field: bool) -> dict[str, str]:
    """Return the files that are the same for every model: the module, its types, its worker, an example and the field."""
    worker = bare(WEB / "worker.js").replace('"./answering.js"', '"./seq2see.js"')
    package = {
        "name": "seq2see-model", "version": version("seq2see"), "type": "module", "license": "SEE LICENSE IN card.md",
        "exports": {".": {"types": "./seq2see.d.ts", "default": "./seq2see.js"}, "./*": "./*"},
    }  # fmt: skip
    return {
        "seq2see.js": _head() + joined(MODULES, ("load", "Answering")),
        "worker.js": _head() + worker,
        "seq2see.d.ts": (WEB / "seq2see.d.ts").read_text(encoding="utf-8"),
        "index.html": (WEB / "index.html").read_text(encoding="utf-8"),
        "package.json": json.dumps(package, indent=2) + "\n",
        **({"human-date.js": (WEB / "human-date.js").read_text(encoding="utf-8")} if field else {}),
    }


def _head() -> str:
    return (
        f"/*! seq2see {version('seq2see')}, MIT licence. Made by `seq2see export --to web` of the page's modules. */\n"
    )


def joined(modules: Sequence[str], exported: Sequence[str]) -> str:
    """Return modules as one that exports some of their names; each has a scope of its own."""
    found, home = [], {}
    for module in modules:
        own = PurePosixPath(module).stem
        code = bare(STATIC / module)
        names = re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", code, re.MULTILINE)
        code = re.sub(
            r'^import \{([^}\n]*)\} from "(?:[^"\n]*/)?(\w+)\.js";', r"const {\1} = $\2;", code, flags=re.MULTILINE
        )
        code = re.sub(r"^export ", "", code, flags=re.MULTILINE)
        assert not re.search(r"^(import|export) ", code, re.MULTILINE), f"{module} imports or exports in another way"
        found.append(f"const ${own} = (() => {{\n{code.strip()}\nreturn {{ {', '.join(names)} }};\n}})();")
        home.update(dict.fromkeys(names, own))
    return "\n".join([*found, *(f"export const {{ {name} }} = ${home[name]};" for name in exported)]) + "\n"


def described(name: str, model: Model) -> dict[str, Any]:
    """Describe a model for the module: what its page knows, its confidence, the names of months if it reads dates."""
    about = live.described(model)
    del about["glossary"]
    shown = describe_model(name, model.config, model.card, model.path)
    sure = model.confidence
    return {
        **about,
        "about": {
            **{key: shown[key] for key in ("name", "task", "parameters", "examples")},
            "confidence": None if sure is None else f"{sure.meaning[0].upper()}{sure.meaning[1:]}.",
        },
        "confidence": None if sure is None else _confidence(sure, model.config.decoding.sentences),
        "months": _months() if model.config.task == "human-dates" else None,
    }


def _confidence(sure: Confidence, sentences: bool) -> dict[str, Any]:
    own = languages.read_by(sure.familiar.surprise) if sentences else None
    words = {language: sorted(some) for language, some in languages.WORDS.items()} if own else {}
    return {"weights": sure.weights, "familiar": sure.familiar.to_json(), "language": own or "", "languages": words}


def _months() -> list[list[str]]:
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    return [sorted({without_accents(name) for name in line.split("\t")}) for line in lines]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _drawn(model: Model) -> list[str]:
    """Make up texts for a model that has no examples."""
    rows = made_up(model.config.model, model.tokenizers, INPUTS)
    return [model.tokenizers.source.decode(row) for row in rows]


def _tried(place: Path, texts: Sequence[str], answers: Answers, exact: bool) -> str:
    """Compare the folder's answers in Node with the model's; where Node is not installed, say so."""
    node = shutil.which("node")
    if node is None:
        return "not tried, since Node is not installed"
    asked = json.dumps({"folder": f"{place.resolve().as_uri()}/", "texts": list(texts)})
    try:
        run = subprocess.run(
            [node, "--input-type=module", "--eval", TRIED], input=asked, capture_output=True, encoding="utf-8",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(
            f"Node did not answer {len(texts)} texts in {SECONDS} seconds. Nothing was written: try again on a machine "
            "that does less besides, or where Node is not installed, which leaves the check out."
        ) from None
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"Node could not run the module ({last}): Node 18 or newer was expected.")
    pairs = list(zip(answers(texts), json.loads(run.stdout), strict=True))
    same = sum(ours == theirs for ours, theirs in pairs)
    if exact and same < len(pairs):
        text = next(text for text, (ours, theirs) in zip(texts, pairs, strict=True) if ours != theirs)
        raise UserError(
            f"The module answers {text!r} in Node otherwise than the model does. Nothing was written: please report it."
        )
    return f"{same} of {len(pairs)} answers in Node the same as here"
