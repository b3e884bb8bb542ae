"""Text to ids and back."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest

from seq2see.errors import FolderError, InputError
from seq2see.tokenizers.tokenizer import DOCUMENT_VOCABULARY, Tokenizer, fold


def test_document_vocabulary_has_the_documents_ids() -> None:
    ids = {token: number for number, token in enumerate(DOCUMENT_VOCABULARY)}
    assert len(ids) == len(DOCUMENT_VOCABULARY) == 68
    assert [ids[c] for c in "09AZaz-, "] == [0, 9, 10, 35, 36, 61, 62, 63, 64]
    assert [ids[t] for t in ("<sos>", "<eos>", "<pad>")] == [65, 66, 67]


def test_document_examples() -> None:
    tokenizer = Tokenizer.characters()
    assert tokenizer.encode("1676-11-30") == [65, 1, 6, 7, 6, 62, 1, 1, 62, 3, 0, 66]
    ids = tokenizer.encode("November 30, 1676")
    assert ids == [65, 23, 50, 57, 40, 48, 37, 40, 53, 64, 3, 0, 63, 64, 1, 6, 7, 6, 66]
    assert tokenizer.raw(ids, 20) == "<sos>November 30, 1676<eos><pad>"
    assert tokenizer.decode(ids) == "November 30, 1676"


def test_folding_takes_every_kind_of_space() -> None:
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    assert len(spaces) > 20
    for space in spaces:
        for text in (f"a{space}b", f"{space}a {space}b", f"é{space}{space}b{space}"):
            assert fold(text) == " ".join(unicodedata.normalize("NFC", text).split()), repr(text)
    composed = "e\u0301 " * 100  # longer than what is composed at once
    assert fold(composed) == ("é " * 100).strip()
    assert fold("e\u0301") == "é"
    assert fold("one word. ") == "one word."
    assert fold("") == ""


def test_round_trip_keeps_spaces_and_lines() -> None:
    texts = ["  two  spaces ", "a\nb\r\n", "naïve 日本 👍🏽", "<eos> is text here", ""]
    tokenizer = Tokenizer.characters_of(texts)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert len(tokenizer.encode(text)) == len(text) + 2


def test_unknown_character_is_named_with_its_place() -> None:
    with pytest.raises(InputError, match=r"'/' \(U\+002F\) at character 5"):
        Tokenizer.characters().check("1845/01/05")


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(Tokenizer.characters_of(["abcé"]).to_json(), encoding="utf-8")
    loaded = Tokenizer.load(path)
    assert loaded.decode(loaded.encode("éab")) == "éab"
    assert loaded.to_json() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"version": "1.0"}'])
def test_broken_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(FolderError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")
