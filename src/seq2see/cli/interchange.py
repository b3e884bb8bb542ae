"""``seq2see import``, ``push``, ``export`` and ``compress``: models of other libraries, and ours for others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from seq2see.cli.options import ModelName
from seq2see.cli.output import say
from seq2see.errors import UserError, installed
from seq2see.files import given_text

if TYPE_CHECKING:
    from seq2see.seq2seq import Seq2Seq

#: The packages that each format needs.
NEEDS = {
    "ctranslate2": ["ctranslate2"],
    "hf": ["transformers"],
    "onnx": ["onnx", "onnxscript", "onnxruntime"],
    "web": [],
}
BITS = {"float32": 32, "int8": 8}
ROUNDED = ("ctranslate2", "web")  # the formats that can have eight-bit weights


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("import")(import_)
    app.command()(push)
    app.command()(export)
    app.command()(compress)


def import_(
    source: Annotated[str, Argument(help="A Hugging Face folder or hf:NAME, a fairseq checkpoint, a CTranslate2 folder, "
                      "an Argos package.")],
    out: Annotated[Path | None, Option("--out", "-o", metavar="DIR",
                   help="The model folder to write; named after the source if not given.")] = None,
    from_language: Annotated[str | None, Option(metavar="CODE",
                             help="The language of the inputs, such as eng_Latn.")] = None,
    to_language: Annotated[str | None, Option(metavar="CODE",
                           help="The language of the answers, such as fra_Latn.")] = None,
) -> None:  # fmt: skip
    """Convert a model of another library into a model folder: MarianMT, M2M100, NLLB, BART, mBART, Pegasus and others.

    No code of the model is run, and only hf:NAME is downloaded. All commands then work as with any model folder.

    [dim]seq2see import hf:Helsinki-NLP/opus-mt-en-fr --out en-fr-opus[/dim]

    [dim]seq2see import nllb-200-distilled-600M --from-language eng_Latn --to-language fra_Latn[/dim]
    """
    from seq2see.interchange.reading import import_model
    from seq2see.seq2seq import load

    path, notes = import_model(source, out, (from_language, to_language))
    for note in notes:
        say(note)
    say(f"{path}: {load(path, engine='torch')!r}. `seq2see predict --model {path} TEXT` answers.")


def push(
    target: Annotated[str, Argument(metavar="hf:NAME", help="hf: and the name of a repository.")],
    model: ModelName = "dates",
    private: Annotated[bool, Option("--private", help="Make a new repository private.")] = False,
) -> None:
    """Upload a model to the Hugging Face Hub, in the format that `transformers` loads.

    It is exported and compared first, as by `seq2see export --to hf`. The Hub requires a token: `hf auth
    login`, or the environment variable HF_TOKEN.

    [dim]seq2see push hf:me/my-dates --model my-dates[/dim]
    """
    import tempfile

    if not target.startswith("hf:") or not target.removeprefix("hf:"):
        raise UserError(f"{target!r} is not a place to upload to: hf:NAME was expected, such as hf:me/my-dates.")
    from seq2see.interchange.reading import push as upload
    from seq2see.seq2seq import load

    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "model"
        compared = _written("hf", out, load(model, engine="torch"), [], 32)
        say(f"{upload(out, target.removeprefix('hf:'), private)}: {compared}.")


def export(
    directory: Annotated[Path | None, Argument(metavar="DIR", help="The same as --out.", show_default=False)] = None,
    model: ModelName = "dates",
    to: Annotated[str, Option("--to", "--format", metavar="NAME",
                  help="ctranslate2, hf (Hugging Face), onnx, or web (JavaScript).")] = "ctranslate2",
    out: Annotated[Path | None, Option("--out", "-o", metavar="DIR",
                   help="Where hf, onnx and web are written: a folder that does not exist yet.")] = None,
    quantization: Annotated[str, Option("--quantization", "-q", metavar="TYPE",
                            help="float32, or int8: smaller and faster.")] = "float32",
    file: Annotated[Path | None, Option("--file", "-f", metavar="FILE",
                    help="Inputs to check it on; made up if not given.")] = None,
) -> None:  # fmt: skip
    """Write a model for another program, checked against ours token by token and logit by logit.

    The CTranslate2 format goes into the model's own folder, for other programs; `predict` makes its own in the user's
    cache. In float32 every answer must be the same; for int8 the agreement is printed. The other formats go into a new
    folder. `web` is a JavaScript module that runs the model in a page or in Node, with an example page; if Node is
    installed, its answers are compared.

    [dim]seq2see export --model my-dates --quantization int8[/dim]

    [dim]seq2see export --model my-dates --to hf --out my-dates-hf[/dim]

    [dim]seq2see export --model human-dates --to web date-field[/dim]
    """
    if directory is not None and out is not None:
        raise UserError(f"Two folders were given, {directory} and --out {out}: leave one out.")
    out = directory if out is None else out
    if to not in NEEDS:
        raise UserError(f"--to is {to!r}: {', '.join(NEEDS)} were expected.")
    from seq2see.storage import folder

    path = folder.find(model)
    _check_export(to, out, path, folder.read_config(path).model.members, quantization)
    from seq2see.seq2seq import load

    loaded = load(model, engine="torch")
    inputs = [] if file is None else given_text(file, "a text file with one input in each line").splitlines()
    for text in inputs:
        loaded.answerer.check(text)
    if out is not None:
        say(f"{out}: {_written(to, out, loaded, inputs, BITS[quantization])}.")
        return
    from seq2see.interchange.to_ctranslate2 import export as write

    parity = write(path, loaded.transformer, loaded.tokenizers, quantization, inputs, loaded.config.decoding)
    say(f"{path / to}: {quantization}; {parity}.")


def _check_export(to: str, out: Path | None, path: Path, members: int, quantization: str) -> None:
    """Refuse what cannot be exported so, before the model is loaded."""
    if members > 1:
        raise UserError(
            f"{path.name} is an ensemble of {members} models, which other programs cannot run as one: teach one model by "
            f"it (`seq2see train FILE --teacher {path.name}`) and export that."
        )
    for package in NEEDS[to]:
        installed(package, f"--to {to}")
    if to != "ctranslate2" and out is None:
        raise UserError(f"--to {to} needs a folder to write to: add --out DIR.")
    if to == "ctranslate2" and out is not None:
        raise UserError(
            f"{out} was given as the folder to write, but the CTranslate2 format goes into the model's own folder, "
            f"{path}: name no folder."
        )
    if quantization != "float32" and to not in ROUNDED:
        raise UserError(f"--quantization {quantization} is for {' and '.join(ROUNDED)}: {to} is written in float32.")
    if to == "web" and quantization not in BITS:
        raise UserError(f"--quantization is {quantization!r}: {' or '.join(BITS)} was expected.")


def _written(to: str, out: Path, loaded: Seq2Seq, inputs: list[str], bits: int) -> object:
    """Write a model into a new folder; return what the comparison says."""
    config, network, tokenizers = loaded.config, loaded.transformer, loaded.tokenizers
    if to == "hf":
        from seq2see.interchange.to_huggingface import export as write_huggingface

        return write_huggingface(out, config, network, tokenizers, inputs, loaded.card)
    if to == "onnx":
        from seq2see.interchange.to_onnx import export as write_onnx

        return write_onnx(out, config, network, tokenizers, inputs)
    from seq2see.page.web import export as write_web

    def answers(texts: Sequence[str]) -> list[str | None]:
        return [answer.output for answer in loaded.answers(texts, whole=True)]

    assert loaded.path is not None
    return write_web(out, loaded.path.name, loaded, answers, bits, inputs)


def compress(
    out: Annotated[Path, Option("--out", "-o", metavar="DIR", help="The model folder to write.")],
    model: ModelName = "dates",
) -> None:
    """Write a model folder with weights of eight bits: a quarter of the size, with almost no loss.

    Each row of each matrix is rounded to 255 steps of its own size. The folder is used like any other;
    `seq2see evaluate FILE --compare A B` measures what the rounding costs.

    [dim]seq2see compress --model runs/mine --out mine-small[/dim]
    """
    from seq2see.seq2seq import load
    from seq2see.storage.folder import find, weights_path

    if out.exists():
        raise UserError(f"{out} exists already: name a new folder.")
    load(model, engine="torch").save(out, eight_bits=True)
    before, after = (weights_path(path).stat().st_size for path in (find(model), out))
    say(f"{out}: {before / 1e6:,.1f} MB became {after / 1e6:,.1f} MB.")
