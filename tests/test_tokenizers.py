"""Words, BPE, unigram and WordPiece: nothing lost, nothing unknown, every token's place in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from seq2see.errors import UserError
from seq2see.tokenizers import sentencepiece as spm
from seq2see.tokenizers.compare import SAMPLE, compare
from seq2see.tokenizers.limits import LONGEST_KEY, LONGEST_MAPPED, is_character_map
from seq2see.tokenizers.pieces import _byte_level
from seq2see.tokenizers.tokenizer import Tokenizer


def any_texts(count: int) -> list[str]:
    """Texts of characters from all over Unicode, short and long, the same each time."""
    from random import Random

    random = Random(1)
    alphabets = [range(32, 127), range(0, 0x300), range(0x300, 0x370), range(0x2000, 0x2100), range(0x10000, 0x10FFFF)]

    def character() -> str:
        number = random.choice(random.choice(alphabets))
        return chr(number)

    return ["".join(character() for _ in range(random.randrange(30))) for _ in range(count)]


CAT = "The cat sat on the mat, and it's 1999 again!"
TEXTS = [*SAMPLE, CAT, "L'homme était là ; où ?"] * 2
WEIRD = [
    "", " ", "  two  spaces ", "a\nb\r\n\tc", "naïve café", "cafe\u0301 e\u0301", "日本語テキスト",
    "👍🏽👨‍👩‍👧‍👦 flags 🇫🇷",
    "<eos> <sos><pad> <unk> <0x41><0xFF>", "▁under ▁ score", "Ġ ## Ċ", "\x00\x01\x7f", "\u200b\u202e\ufeff", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "עברית العربية हिन्दी", "\U0010ffff\ud7ff\ue000\ufffd", "١٢٣ ½ Ⅷ", "x" * 3000, "…—«»“”", "a<b>c", "\u3000\u00a0\u202f",
]  # fmt: skip


@pytest.fixture(scope="module", params=["bpe", "unigram", "whole_words"])
def pieces(request: pytest.FixtureRequest) -> Tokenizer:
    make: Callable[[Iterable[str], int], Tokenizer] = getattr(Tokenizer, request.param)
    return make(TEXTS, 600)


def test_saved_and_loaded_cuts_the_same(pieces: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(pieces.to_json(), encoding="utf-8")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode_batch(WEIRD) == pieces.encode_batch(WEIRD)
    assert (loaded.kind, loaded.size, loaded.to_json()) == (pieces.kind, pieces.size, pieces.to_json())


def test_pieces_keep_their_space_and_their_size(pieces: Tokenizer) -> None:
    assert pieces.size <= 600
    assert " the" in pieces.tokens(pieces.encode("on the mat"))
    with pytest.raises(UserError, match="at least 512"):
        getattr(Tokenizer, {"words": "whole_words"}.get(pieces.kind, pieces.kind))(TEXTS, 300)


def test_003_words_are_prepared_as_there() -> None:
    english = Tokenizer.words(["Hi.", "Run!", "Hi there.", "It's well-known, Tom."], min_frequency=1)
    assert english.tokens(english.encode("Hi .")) == ["<sos>", "hi", ".", "<eos>"]
    assert english.tokens(english.encode("HI, Anna!"))[1:-1] == ["hi", ",", "<unk>", "!"]
    assert len(english.encode("hi.")[1:]) == 3  # valid_lens counts hi . <eos>
    assert english.plain("It's well-known, Tom.") == "it's well-known , tom ."
    assert english.decode(english.encode("It's well-known, Tom.")) == "it's well-known , tom ."
    assert english.unknown == 3
    assert english.tokens(english.encode("<eos>"))[1:-1] == ["<unk>", "<unk>", "<unk>"]
    english.check("Ünknown 日本")


def test_003_two_dictionaries_and_rare_words() -> None:
    english = Tokenizer.words(["go .", "go on .", "hi ."], min_frequency=2)
    french = Tokenizer.words(["va !", "continue !", "salut !"], min_frequency=2)
    assert english.vocabulary() == ["<pad>", "<sos>", "<eos>", "<unk>", ".", "go"]
    assert french.vocabulary() == ["<pad>", "<sos>", "<eos>", "<unk>", "!"]
    assert Tokenizer.words(["a b b c c c"], min_frequency=1, vocabulary=6).vocabulary()[4:] == ["c", "b"]
    assert english.offsets("Go ON.")[1:-1] == [(0, 2), (3, 5), (5, 6)]


def test_the_characters_of_a_byte_level_vocabulary_are_those_of_the_library() -> None:
    table = _byte_level()
    assert set(table) == set(ByteLevel.alphabet())
    text = "".join(map(chr, [*range(256), *range(0x400, 0x440), 0x3042, 0x1F600]))
    written = "".join(piece for piece, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text))
    assert bytes(table[sign] for sign in written) == text.encode()


def test_001_tokenisers_compared_on_the_documents_sentence() -> None:
    cuts = {cut.kind: cut for cut in compare("the Transformer is an innovative NLP model!")}
    assert list(cuts) == ["characters", "small words", "bpe", "wordpiece", "unigram"]
    assert {cut.characters for cut in cuts.values()} == {43}
    assert cuts["characters"].tokens == list("the Transformer is an innovative NLP model!")
    assert cuts["small words"].tokens == ["the", "transformer", "is", "an", "innovative", "nlp", "model", "!"]
    for kind in ("bpe", "unigram"):
        assert "".join(cuts[kind].tokens) == "the Transformer is an innovative NLP model!"
    for kind in ("bpe", "wordpiece", "unigram"):
        assert 8 <= len(cuts[kind].tokens) < 43
    assert any(token.startswith("##") for token in cuts["wordpiece"].tokens)


def character_map(units: dict[int, int], texts: bytes = b"b\0", blocks: int = 1) -> bytes:
    """Write a compiled map of characters: a trie of 256 words a block, and the texts that its leaves point to."""
    words = b"".join(units.get(place, 0).to_bytes(4, "little") for place in range(256 * blocks))
    return len(words).to_bytes(4, "little") + words + texts


def step(place: int, label: int, after: int, leaf: bool = False) -> int:
    """Return the word of a trie at a place, which is reached by a letter and leads to another place."""
    return label | leaf << 8 | (place ^ after) << 10


def test_a_map_of_characters_is_followed_to_its_end_before_it_is_used() -> None:
    a = ord("a")
    good = {a: step(a, a, 200, leaf=True), 200: 1 << 31}
    assert is_character_map(character_map(good))
    assert is_character_map(character_map(good, b"x" * LONGEST_MAPPED + b"\0"))
    assert is_character_map(character_map({**good, 200: 1 << 31 | 3}, "é\0".encode() + b"b\0"))
    chain = {256 * n + 1: step(256 * n + 1, 1, 256 * (n + 1)) for n in range(LONGEST_KEY)}
    assert is_character_map(character_map({**chain, 256 * (LONGEST_KEY - 1) + 1: 0}, blocks=LONGEST_KEY + 1))
    bad = {
        "nothing": b"",
        "no texts": character_map(good, b""),
        "a text without an end": character_map(good, b"b\0c"),
        "half a block": (512).to_bytes(4, "little") + bytes(512) + b"b\0",
        "a block and a half": (1536).to_bytes(4, "little") + bytes(1536) + b"b\0",
        "more words than there are": (2048).to_bytes(4, "little") + character_map(good)[4:],
        "a text that is no UTF-8": character_map(good, b"\xff\0"),
        "a long text": character_map(good, b"x" * (LONGEST_MAPPED + 1) + b"\0"),
        "a first step out of the words": character_map({**good, 0: 256 << 10}),
        "a step out of the words": character_map({a: step(a, a, 256)}),
        "a leaf out of the words": character_map({a: step(a, a, 256, leaf=True)}),
        "a text that is not there": character_map({**good, 200: 1 << 31 | 2}),
        "the middle of a letter": character_map({**good, 200: 1 << 31 | 1}, "é\0".encode()),
        "a key without end": character_map(chain, blocks=LONGEST_KEY + 1),
    }
    assert [name for name, data in bad.items() if is_character_map(data)] == []


def test_letters_and_their_marks_are_tokens_of_their_own_and_answers_are_composed() -> None:
    tokenizer = Tokenizer.decomposed_of(["한 é"])
    ids = tokenizer.encode("é한")
    assert len(ids) == 2 + 3 + 2  # e and its accent, three jamo, and both ends
    assert tokenizer.size == 3 + 3 + 1 + 2
    assert tokenizer.decode(ids) == "é한"


@pytest.mark.parametrize("kind", [spm.NORMAL, spm.BYTE])
def test_a_token_that_sentencepiece_does_not_know_is_written_as_it_is(kind: int) -> None:
    pieces = [
        spm.Piece("<unk>", 0.0, spm.UNKNOWN),
        spm.Piece("▁a", -1.0),
        spm.Piece("b", -2.0),
        spm.Piece("<0x21>", -9.0, kind),
    ]
    names = ["<unk>", "</s>", "▁a", "b", "▁more", "s", "b"]  # the last three are not in the model, or are there already
    engine = spm.engine_of(spm.SentencePiece(pieces), names, "<unk>", ["</s>"])
    assert engine.decode([2, 3, 4, 5, 6, 2]) == "ab moresb a"
    assert engine.encode("a more").ids != [2, 4]  # no text is cut into it


def test_any_text_comes_back(pieces: Tokenizer) -> None:
    for text in [*WEIRD, *any_texts(1500)]:
        ids = pieces.encode(text)
        assert pieces.decode(ids) == text
        assert (ids[0], ids[-1]) == (pieces.start, pieces.end)
        assert not {pieces.start, pieces.end, pieces.pad} & set(ids[1:-1])
        pieces.check(text)
    assert pieces.unknown is None
