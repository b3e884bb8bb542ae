"""``seq2see import`` and ``seq2see push``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.output import say
from seq2see.cli.predict import ModelName
from seq2see.errors import UserError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("import")(import_)
    app.command()(push)


def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="A Hugging Face folder or hf:NAME, a fairseq checkpoint, a CTranslate2 folder, an Argos package."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The model folder to write; named after the source if not given.",
        ),
    ] = None,
    from_language: Annotated[
        str | None, typer.Option(metavar="CODE", help="The language of the inputs, such as eng_Latn.")
    ] = None,
    to_language: Annotated[
        str | None, typer.Option(metavar="CODE", help="The language of the answers, such as fra_Latn.")
    ] = None,
) -> None:
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
    target: Annotated[str, typer.Argument(metavar="hf:NAME", help="hf: and the name of a repository.")],
    model: ModelName = "dates",
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
) -> None:
    """Upload a model to the Hugging Face Hub, in the format that `transformers` loads.

    It is exported and compared first, as by `seq2see export --to hf`. The Hub requires a token: `hf auth
    login`, or the environment variable HF_TOKEN.

    [dim]seq2see push hf:me/my-dates --model my-dates[/dim]
    """
    import tempfile

    if not target.startswith("hf:") or not target.removeprefix("hf:"):
        raise UserError(
            f"{target!r} is not a place to upload to: hf:NAME was expected, such as hf:me/my-dates."
        )
    from seq2see.interchange.reading import push as upload
    from seq2see.interchange.to_huggingface import export
    from seq2see.seq2seq import load

    loaded = load(model, engine="torch")
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "model"
        compared = export(out, loaded.config, loaded.transformer, loaded.tokenizers, card=loaded.card)
        say(f"{upload(out, target.removeprefix('hf:'), private)}: {compared}.")
