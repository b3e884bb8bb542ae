"""Reads Argos packages: archives with a CTranslate2 folder and a SentencePiece model."""

from __future__ import annotations

import lzma
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

from seq2see.errors import FolderError, shown
from seq2see.files import plain_file
from seq2see.interchange.imported import LARGEST_LIST, LARGEST_WEIGHTS, Imported, brief, foreign, read_json
from seq2see.interchange.legacy.ctranslate2 import read_ctranslate2
from seq2see.tokenizers import sentencepiece

MOST_ENTRIES = 10_000  # files of an archive
MOST_SQUEEZED = 20  # their total size, divided by that of the archive


def read_argos(path: Path) -> Imported:
    """Read an Argos package: a zip with a CTranslate2 folder and a SentencePiece model."""
    packed = plain_file(path, LARGEST_WEIGHTS)
    try:
        with zipfile.ZipFile(path) as package, tempfile.TemporaryDirectory() as place:
            entries = package.infolist()
            if len(entries) > MOST_ENTRIES:
                raise FolderError(f"{path.name} contains {len(entries):,} files: it is not an Argos package.")
            wanted = [one.filename for one in entries if not one.is_dir() and _wanted(one.filename)]
            unpacked = sum(package.getinfo(name).file_size for name in wanted)
            if unpacked > 2**20 + MOST_SQUEEZED * packed:  # weights can hardly be compressed
                raise FolderError(
                    f"{path.name} has {packed:,} bytes and would unpack to {unpacked:,}, far more than a model does: "
                    "it may be damaged."
                )
            for name in wanted:
                file = Path(place) / Path(name).name
                if file.exists():
                    raise FolderError(f"{path.name} contains {shown(file.name)} twice: it is not an Argos package.")
                with package.open(name) as inside, file.open("xb") as outside:
                    shutil.copyfileobj(inside, outside)
            return _argos(path, Path(place))
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError) as error:
        why = shown(str(error), 100)
        raise FolderError(f"{path.name} cannot be unpacked as an Argos package ({why}): download it again.") from None


def _wanted(name: str) -> bool:
    return Path(name).name in ("model.bin", "config.json", "sentencepiece.model", "metadata.json") or (
        "vocabulary" in Path(name).name and "/stanza/" not in name
    )


def _argos(path: Path, place: Path) -> Imported:
    for name in ("model.bin", "sentencepiece.model"):
        if not (place / name).is_file():
            raise FolderError(f"{path.name} has no {name}: it is not an Argos package that can be imported.")
    found = read_ctranslate2(place, sentencepiece.read(foreign(place / "sentencepiece.model", LARGEST_LIST)))
    found.weights = {name: tensor.clone() for name, tensor in found.weights.items()}  # the unpacked files are deleted
    found.family = "Argos"
    found.decoding = found.decoding.but(beam=4, length_penalty=0.2)
    about = read_json(place / "metadata.json") if (place / "metadata.json").is_file() else {}
    if about.get("from_code"):
        found.notes.append(f"Languages: {brief(about['from_code'])} to {brief(about.get('to_code'))}.".replace("'", ""))
    return found
