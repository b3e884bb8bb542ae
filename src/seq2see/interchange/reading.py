"""Imports a model of another library: recognises its format, reads it, and writes a model folder."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seq2see.errors import FolderError, UserError, installed, shown
from seq2see.files import given_file
from seq2see.interchange.huggingface import read_huggingface
from seq2see.interchange.huggingface_text import Languages
from seq2see.interchange.imported import Imported
from seq2see.interchange.legacy.argos import read_argos
from seq2see.interchange.legacy.ctranslate2 import read_ctranslate2
from seq2see.interchange.legacy.fairseq import read_fairseq
from seq2see.interchange.legacy.marian import read_marian

HUB = "hf:"
#: The files of a repository that are downloaded: no code, and no weights of other frameworks.
FILES = ["*.json", "*.safetensors", "pytorch_model*.bin", "*.spm", "*.model", "merges.txt", "vocab.txt", "README.md"]


def import_model(source: str, out: Path | None = None, languages: Languages = (None, None)) -> tuple[Path, list[str]]:
    """Read a model of another library and write a model folder; return its path, and notes for the user."""
    name = re.sub(r"[^\w.-]+", "-", Path(source.removeprefix(HUB)).name.removesuffix(".argosmodel")) or "imported"
    out = out or Path(name)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: name a new folder with --out.")
    if source.startswith(HUB):
        with tempfile.TemporaryDirectory() as place:
            path = download(source.removeprefix(HUB), Path(place))
            with guarded(path):
                found = read(path, languages)
                found.write(out, source)
        return out, found.notes
    path = Path(source)
    if not path.exists():
        raise UserError(
            f"There is no {source!r}: a folder, a file, or hf:NAME for a model of the Hugging Face Hub was expected."
        )
    with guarded(path):
        found = read(path, languages)
        found.write(out, f"`{path.name}`")
    return out, found.notes


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn any exception that damaged or hostile files cause into one sentence.

    Faults that are expected have messages of their own. This is for all others, such as a value of a wrong type deep in
    a file, or a panic in a library that is written in Rust: they must not become a traceback.
    """
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise FolderError(
            f"{path.name} cannot be read as a model ({shown(why, 200)}): it may be damaged, incomplete or of another "
            "kind."
        ) from error


def read(path: Path, languages: Languages = (None, None)) -> Imported:
    """Read a model of any format that is supported."""
    if path.is_dir():
        if (path / "model.bin").is_file():
            return read_ctranslate2(path, languages=languages)
        if (path / "config.json").is_file():
            return read_huggingface(path, languages)
        checkpoints = [path / name for name in ("checkpoint_best.pt", "model.pt") if (path / name).is_file()]
        if checkpoints:
            return read_fairseq(checkpoints[0], languages)
        if any(path.glob("*.npz")):
            return read_marian(path, languages)
        raise UserError(
            f"{path.name} is not a supported model: config.json (Hugging Face), model.bin (CTranslate2), "
            "checkpoint_best.pt (fairseq) or an .npz (Marian) was expected in it."
        )
    given_file(path, "a model folder or a model file")
    if path.suffix == ".argosmodel" or (zipfile.is_zipfile(path) and path.suffix == ".zip"):
        return read_argos(path)
    if path.suffix in (".pt", ".bin"):
        return read_fairseq(path, languages)
    raise UserError(f"{path.name} is not a supported model: a folder, a .pt or an .argosmodel was expected.")


@contextmanager
def _hub(name: str, what: str, done: str) -> Iterator[None]:
    """Turn what goes wrong with the Hugging Face Hub into one sentence."""
    installed("huggingface_hub", what)
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    try:
        yield
    except (HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, httpx.HTTPError, OSError) as error:
        raise UserError(f"{name} could not be {done} ({str(error).splitlines()[0]}).") from None


def push(path: Path, name: str, private: bool = False) -> str:
    """Upload a folder to the Hugging Face Hub, and return its address there."""
    with _hub(name, "An upload", "uploaded"):
        from huggingface_hub import HfApi

        api = HfApi()
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=path, commit_message="Uploaded by seq2see")
        return str(address)


def download(name: str, place: Path) -> Path:
    """Download the data of a model of the Hugging Face Hub, without its code."""
    with _hub(name, "A download", "downloaded"):
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, allow_patterns=FILES, local_dir=place / "model"))
