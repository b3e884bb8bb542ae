"""``seq2see serve``, ``seq2see see`` and ``seq2see watch``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.answering import loaded
from seq2see.cli.output import complain, say
from seq2see.cli.predict import Device, Member, ModelName
from seq2see.errors import UserError
from seq2see.files import given_text


MOST_INSIDE = 50_000_000  # weights that a page holds unless its bits are chosen


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(serve)
    app.command()(see)
    app.command()(site)
    app.command()(watch)


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="NAME|DIR", help="A shipped model or a model folder. May be given several times."
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on; 0 means any free port.")
    ] = 8000,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="As in predict: auto, torch, ctranslate2, written, or int8.")
    ] = "auto",
    device: Device = "auto",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with a token that clients must send as Authorization: Bearer TOKEN. The "
            "environment variable SEQ2SEE_TOKEN can hold the token instead.",
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write a line for each request to the error output.")
    ] = False,
    proxy: Annotated[
        str | None,
        typer.Option(
            "--proxy", metavar="ADDRESS", help="The address of a proxy whose X-Forwarded-For header names the clients."
        ),
    ] = None,
) -> None:
    """Answer over HTTP, and serve a page that shows every number of each answer.

    The page is at /. The interface is at /api/predict, /api/trace and /api/models; /api/openapi.json describes it.
    Without --model it serves dates. It accepts connections from this machine only, unless --host is given.

    [dim]seq2see serve --open[/dim]

    [dim]curl -d '{"inputs": ["1845-01-05"]}' -H content-type:application/json
    localhost:8000/api/predict[/dim]
    """
    from seq2see.serve.batching import Limits
    from seq2see.serve.server import is_loopback
    from seq2see.serve.server import serve as run

    token = _token(token_file)

    models = {}
    for given in model or ["dates"]:
        name = Path(given).resolve().name
        if name in models:
            raise UserError(f"Two models are called {name!r}: rename one of the folders.")
        models[name] = loaded(given, device, engine)
        models[name].network.engine_for(1)  # the slow start of the first answer happens before a client waits

    def ready(address: str) -> None:
        complain(f"Serving {', '.join(models)} at {address} (Ctrl-C ends it)")
        if not is_loopback(host):
            asks = "it requires no token" if token is None else "it requires a token, which HTTP sends unencrypted"
            complain(f"Careful: other machines can reach this server, and {asks}.")
        if open_:
            typer.launch(address)

    def ended(taken: int, answered: int) -> None:
        complain(f"Stopped: {taken:,} requests accepted, {answered:,} answered.")

    run(models, host, port, ready, Limits(), ended, token, complain if access_log else None, proxy)


def _token(path: Path | None) -> str | None:
    """Read the token that clients must send. It is not an option, since every user can read a command line."""
    if path is None:
        token = os.environ.get("SEQ2SEE_TOKEN")
        origin = "SEQ2SEE_TOKEN"
    else:
        origin = str(path)
        token = given_text(path, "a file with a token in one line", 2**16).strip()
    if token is not None and not re.fullmatch(r"[!-~]{8,1000}", token):
        raise UserError(f"{origin} contains no token: 8 to 1,000 letters, digits or signs in one line were expected.")
    return token


def see(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to answer.")],
    model: ModelName = "dates",
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The file to write.")] = Path("seq2see.html"),
    bits: Annotated[
        int | None,
        typer.Option(
            metavar="32|16|8",
            help="Bits per weight in the file; 32 for a model of up to 100,000 weights, else 8. Those of a model of more "
            "than 50 million stay out unless this is given.",
        ),
    ] = None,
    member: Member = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the file in a browser.")] = False,
) -> None:
    """Write the page as a single file that needs no server: the model runs in it and answers any text.

    The file opens with the answer to TEXT. Of an ensemble it holds one member.

    [dim]seq2see see 1845-01-05 --html january.html[/dim]
    """
    if bits not in (None, 32, 16, 8):
        raise UserError(f"--bits is {bits}: 32, 16 or 8 was expected.")
    from seq2see.page.describe import describe_ensemble, describe_model
    from seq2see.page.live import live_page, why_not
    from seq2see.page.single_file import single_file
    from seq2see.seq2seq import load
    from seq2see.storage.folder import write_atomically

    loaded, name = load(model), Path(model).name
    several = loaded.config.model.members
    why = why_not(loaded.tokenizers, loaded.config.decoding, loaded.config.model.positions)
    if why is None and bits is None and loaded.config.model.parameters > MOST_INSIDE:
        why = f"its {loaded.config.model.parameters / 1e6:.0f} million weights stay here (--bits 8 takes them along)"
    if why is None:
        page = live_page(name, loaded, text, bits, member=member)
    else:
        trace = loaded.trace(text, member=member)
        described = describe_model(name, loaded.config, loaded.card, loaded.path)
        if several > 1:
            [together] = loaded.answers([text], whole=True)
            described["ensemble"] = describe_ensemble(loaded.config.model, member, together)
        page = single_file(described, trace)
    data = page.encode()
    write_atomically(html, data)
    size = f"{len(data) / 1e6:.1f} MB" if len(data) >= 1e6 else f"{len(data) / 1e3:.0f} KB"
    does = "it answers any text, offline" if why is None else f"it shows this answer alone, because {why}"
    only = f" It shows member {member} of {several}: the ensemble may answer otherwise." if several > 1 else ""
    say(f"{html}: {size}; {does}.{only} Open it in a browser.")
    if open_:
        typer.launch(html.resolve().as_uri())


def site(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; it must not exist yet.")],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="NAME|DIR", help="A model to show. May be given several times."),
    ] = None,
) -> None:
    """Write a static site that any web host can serve: the page of each model, which answers, and its card.

    [dim]seq2see site public --model dates --model my-model[/dim]
    """
    from seq2see.page.describe import describe_model
    from seq2see.page.live import live_page, why_not
    from seq2see.page.site import HOME, Site
    from seq2see.seq2seq import load
    from seq2see.storage.folder import shipped_models

    made = Site()
    for each in model or shipped_models():
        loaded, name = load(each), Path(each).resolve().name
        if why := why_not(loaded.tokenizers, loaded.config.decoding, loaded.config.model.positions):
            raise UserError(f"{each} cannot run in a page, because {why}: leave it out.")
        examples = describe_model(name, loaded.config, loaded.card, loaded.path)["examples"]
        if not examples:
            raise UserError(f"{each} has no log with sample texts to open its page with: leave it out.")
        made.add_model(name, live_page(name, loaded, examples[0], home=HOME), loaded.card, loaded.path)
    made.write(out)
    say(f"{out}: {len(made.models)} models. Serve this folder.")


def watch(
    run: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a training, running or finished, or a shipped model.")
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on; 0 means any free port.")
    ] = 8001,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show a training, running or finished: its losses, scores and answers, and how its attention sharpens.

    The command reads only the log in the folder. `seq2see train --watch` shows the same page from the start.

    [dim]seq2see watch runs/mine --open[/dim]
    """
    from seq2see.serve.live import find_run
    from seq2see.serve.live import watch as show
    from seq2see.serve.server import is_loopback
    from seq2see.storage.folder import shipped_models

    def ready(address: str) -> None:
        complain(f"Showing {run} at {address} (Ctrl-C ends it)")
        if not is_loopback(host):
            complain("Careful: other machines can reach this page, and it requires no token.")
        if open_:
            typer.launch(address)

    if not run.exists() and str(run) not in shipped_models():
        raise UserError(
            f"There is no folder {str(run)!r}. Give the folder of a training, running or finished, such as runs/mine."
        )
    show(find_run(run), host, port, ready)
