"""``seq2see serve``, ``see``, ``site``, ``watch`` and ``learn``: answers over HTTP, pages, and your own functions."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from seq2see.cli.answering import loaded
from seq2see.cli.options import Device, Host, Member, ModelName, Models, Open, Port
from seq2see.cli.output import complain, say
from seq2see.errors import UserError
from seq2see.files import given_text

MOST_INSIDE = 50_000_000  # weights that a page holds unless its bits are chosen


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (serve, see, site, watch, learn):
        app.command()(command)


def serve(
    model: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    open_: Open = False,
    engine: Annotated[str, Option("--engine", metavar="NAME",
                      help="As in predict: auto, torch, ctranslate2, written, or int8.")] = "auto",
    device: Device = "auto",
    token_file: Annotated[Path | None, Option("--token-file", metavar="FILE",
                          help="A file with a token that clients must send as Authorization: Bearer TOKEN. The "
                          "environment variable SEQ2SEE_TOKEN can hold the token instead.")] = None,
    access_log: Annotated[bool, Option("--access-log",
                          help="Write a line for each request to the error output.")] = False,
    proxy: Annotated[str | None, Option("--proxy", metavar="ADDRESS",
                     help="The address of a proxy whose X-Forwarded-For header names the clients.")] = None,
) -> None:  # fmt: skip
    """Answer over HTTP, and serve a page that shows every number of each answer.

    The page is at /. The interface is at /api/predict, /api/trace and /api/models; /api/openapi.json describes it.
    Without --model it serves dates. It accepts connections from this machine only, unless --host is given.

    [dim]seq2see serve --open[/dim]

    [dim]curl -d '{"inputs": ["1845-01-05"]}' -H content-type:application/json
    localhost:8000/api/predict[/dim]
    """
    from seq2see.serve.batching import Limits
    from seq2see.serve.server import serve as run

    token = _token(token_file)

    models = {}
    for given in model or ["dates"]:
        name = Path(given).resolve().name
        if name in models:
            raise UserError(f"Two models are called {name!r}: rename one of the folders.")
        models[name] = loaded(given, device, engine)
        models[name].network.engine_for(1)  # the slow start of the first answer happens before a client waits
    asks = "it requires no token" if token is None else "it requires a token, which HTTP sends unencrypted"

    def ready(address: str) -> None:
        _ready(f"Serving {', '.join(models)}", address, host, f"this server, and {asks}", open_)

    def ended(taken: int, answered: int) -> None:
        complain(f"Stopped: {taken:,} requests accepted, {answered:,} answered.")

    run(models, host, port, ready, Limits(), ended, token, complain if access_log else None, proxy)


def _ready(what: str, address: str, host: str, reached: str, open_: bool) -> None:
    """Say where a server listens, and warn if others can reach it."""
    from seq2see.serve.server import is_loopback

    complain(f"{what} at {address} (Ctrl-C ends it)")
    if not is_loopback(host):
        complain(f"Careful: other machines can reach {reached}.")
    if open_:
        typer.launch(address)


def _token(path: Path | None) -> str | None:
    """Read the token that clients must send. It is not an option, since every user can read a command line."""
    origin = "SEQ2SEE_TOKEN" if path is None else str(path)
    token = (
        os.environ.get(origin) if path is None else given_text(path, "a file with a token in one line", 2**16).strip()
    )
    if token is not None and not re.fullmatch(r"[!-~]{8,1000}", token):
        raise UserError(f"{origin} contains no token: 8 to 1,000 letters, digits or signs in one line were expected.")
    return token


def see(
    text: Annotated[str, Argument(metavar="TEXT", help="The text to answer.")],
    model: ModelName = "dates",
    html: Annotated[Path, Option("--html", metavar="FILE", help="The file to write.")] = Path("seq2see.html"),
    bits: Annotated[int | None, Option(metavar="32|16|8",
                    help="Bits per weight in the file; 32 for a model of up to 100,000 weights, else 8. "
                    "Those of a model of more than 50 million stay out unless this is given.")] = None,
    member: Member = 0,
    open_: Annotated[bool, Option("--open", help="Open the file in a browser.")] = False,
) -> None:  # fmt: skip
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
    out: Annotated[Path, Argument(metavar="DIR", help="The folder to write; it must not exist yet.")],
    model: Annotated[list[str] | None, Option("--model", "-m", metavar="NAME|DIR",
                     help="A model to show. May be given several times.")] = None,
) -> None:  # fmt: skip
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
    run: Annotated[Path, Argument(metavar="DIR",
                   help="The folder of a training, running or finished, or a shipped model.")],
    host: Host = "127.0.0.1",
    port: Port = 8001,
    open_: Open = False,
) -> None:  # fmt: skip
    """Show a training, running or finished: its losses, scores and answers, and how its attention sharpens.

    The command reads only the log in the folder. `seq2see train --watch` shows the same page from the start.

    [dim]seq2see watch runs/mine --open[/dim]
    """
    from seq2see.serve.live import find_run
    from seq2see.serve.live import watch as show
    from seq2see.storage.folder import shipped_models

    def ready(address: str) -> None:
        _ready(f"Showing {run}", address, host, "this page, and it requires no token", open_)

    if not run.exists() and str(run) not in shipped_models():
        raise UserError(
            f"There is no folder {str(run)!r}. Give the folder of a training, running or finished, such as runs/mine."
        )
    show(find_run(run), host, port, ready)


def learn(
    folder: Annotated[Path, Argument(metavar="DIR", help="Your folder; a new one at first.")],
    train: Annotated[bool, Option("--train", help="Train your functions, if all are right.")] = False,
    seconds: Annotated[int, Option("--seconds", min=1, help="Seconds of that training.")] = 110,
) -> None:
    """Write a Transformer yourself, in eleven functions.

    The first call writes a file for each function, with its equation and its shapes. The next ones compare what you
    have written with the values that the shipped model `dates` records, and give a hint for each known mistake. Your
    files are never overwritten. In the end your functions write dates, and learn to write them. The status is 1 while
    one of them is wrong.

    [dim]seq2see learn build[/dim]
    """
    from seq2see.learn.folder import review, together, write_stubs

    missing = write_stubs(folder)
    again = f"`seq2see learn {folder}`"
    if missing:
        say(f"New in {folder}: {', '.join(f'{name}.py' for name in missing)}.")
    states: dict[str, str] = {}
    for verdict, tries in review(folder):
        states[verdict.part] = verdict.state
        say(f"{verdict!r}" + (f" (try {tries})" if verdict.state == "wrong" and tries > 1 else ""))
    right = list(states.values()).count("right")
    if right < len(states):
        after = next(name for name, state in states.items() if state != "right")
        say(f"\n{right} of {len(states)} are right. Next: write {folder / after}.py, then run {again} again.")
        raise typer.Exit(int("wrong" in states.values()))
    say(f"\nAll {right} are right.")
    for line in together(folder, seconds if train else None):
        say(line)
