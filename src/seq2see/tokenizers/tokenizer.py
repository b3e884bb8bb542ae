"""One interface to every kind of tokenizer, on the ``tokenizers`` library and its file format."""

from __future__ import annotations

import json
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from seq2see.errors import FolderError, InputError, UserError, shown
from seq2see.tokenizers import limits, symbols
from seq2see.tokenizers.symbols import MARKS, composed
from seq2see.tokenizers.symbols import decomposed as decomposed

EVERY_CHARACTER = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
FEATURES = pre_tokenizers.Split(Regex(symbols.PARTS.pattern), "isolated")
START, END, PAD, UNKNOWN = "<sos>", "<eos>", "<pad>", "<unk>"
BYTES = [f"<0x{number:02X}>" for number in range(256)]  # what a character without a token of its own becomes
BYTES_TO_TEXT = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

#: The units that sub-words may not cross: a word with the space before it, a digit, signs, white space. "<" is a unit
#: of its own, so that no text can spell a special token or a byte.
PIECES = pre_tokenizers.Split(Regex(r"<| ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}<]+|\s+(?!\S)|\s"), "isolated")
#: 003's preparation: words at white space, signs split off, apostrophes and hyphens left within words.
WORDS = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(r"\s+"), "removed"), pre_tokenizers.Split(Regex(r"[^\w\s'’-]"), "isolated")]
)

#: The 68 tokens of the shipped dates model, in order: 0-9, A-Z, a-z, three signs, three special tokens.
DOCUMENT_VOCABULARY = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase, *"-, ", START, END, PAD)


def fold(text: str) -> str:
    """Return a text in Unicode NFC, each run of white space (no-break spaces included) as one space, none at the ends.

    Training and answers use this form.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text) if len(text) <= MARKS else composed(text)
    # Of all white space only " " is printable. For most texts this check suffices, and it is cheaper than a split.
    if text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text
    return " ".join(text.split())


def _without(row: Sequence[int], silent: set[int]) -> Sequence[int]:
    """Leave some ids out; usually it is only the last one."""
    spoken = row[:-1] if row and row[-1] in silent else row
    return spoken if silent.isdisjoint(spoken) else [i for i in spoken if i not in silent]


class Tokenizer:
    """Text to ids, ``<sos>`` and ``<eos>`` included, and ids to text.

    An imported tokenizer may use other names: the tokens around a text are in its template, its padding token in its
    padding. ``before`` and ``after`` are the ids around a text. Those before a target are the decoder's start token,
    then forced ones, such as a language.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        padding = engine.padding
        self.engine.no_padding()
        self.engine.no_truncation()
        self.own = padding is None  # whether seq2see made it
        self.before: list[int]
        self.after: list[int]
        if padding is None:
            self.start, self.end, self.pad = (self._special(token) for token in (START, END, PAD))
            self.before, self.after = [self.start], [self.end]
        else:
            self.pad = int(padding["pad_id"])
            self.before, self.after = self._template()
            self.start = self.before[0] if self.before else self.pad
            self.end = self.after[0] if self.after else self.pad
        self.unknown: int | None = engine.token_to_id(UNKNOWN) if self.own else limits.unknown_of(engine)
        self.size = int(engine.get_vocab_size())  # the number of tokens
        # Whether spaces are written as ▁, as in SentencePiece. Its answers have no space at their ends.
        self.spaces = not self.own and "Metaspace" in repr(engine.pre_tokenizer)
        self.has_bytes = engine.token_to_id(BYTES[0]) is not None
        # If tokens are characters or symbols: their ids. A look-up is faster than the library.
        self.letters: dict[str, int] | None = None
        self.separator: str | None = None  # of symbols
        self.cut: Callable[[str], Iterable[str]] = str
        if self.own and (looked_up := _looked_up(engine)) and engine.encode("").ids == [self.start, self.end]:
            self.cut, self.separator = looked_up
            special = {START, END, PAD}
            self.letters = {token: i for token, i in engine.get_vocab().items() if token not in special}
            self.names = self.vocabulary()

    def _special(self, token: str) -> int:
        number = self.engine.token_to_id(token)
        if number is None:
            raise FolderError(f"The tokenizer has no {token} token: was its tokenizer.json written by seq2see?")
        return int(number)

    def _template(self) -> tuple[list[int], list[int]]:
        """Return the ids that the template puts before and after a text."""
        state = json.loads(self.engine.post_processor.__getstate__()) if self.engine.post_processor else {}
        ids = {name: token["ids"] for name, token in state.get("special_tokens", {}).items()}
        before: list[int] = []
        after: list[int] = []
        seen = False
        for part in state.get("single", []):
            if "Sequence" in part:
                seen = True
            else:
                (after if seen else before).extend(ids[part["SpecialToken"]["id"]])
        if not seen:
            raise FolderError("The tokenizer has no template of a text: import the model again.")
        return before, after

    def keep_to(self, size: int) -> None:
        """Map ids from ``size`` on to the unknown id: the model has no vectors for them."""
        if self.unknown is not None and not self.own:
            self.size = min(self.size, size)

    @classmethod
    def of_others(cls, engine: Engine, before: Sequence[str], after: Sequence[str], pad: str, size: int) -> Tokenizer:
        """Wrap an imported tokenizer; ``size`` is the number of the model's tokens."""
        ids: dict[str, int] = engine.get_vocab(with_added_tokens=True)
        for name in (*before, *after, pad):
            if name not in ids:
                raise FolderError(f"The tokenizer has no token {shown(name)}.")
        if (missing := size - engine.get_vocab_size()) > 0:
            # The model has vectors without a token, to pad its table: they get names that no text can spell.
            engine.add_tokens([AddedToken(f"\x00unused {number}", normalized=False) for number in range(missing)])
        engine.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            special_tokens=[(name, ids[name]) for name in dict.fromkeys([*before, *after])],
        )
        engine.enable_padding(pad_id=ids[pad], pad_token=pad)
        made = cls(engine)
        made.keep_to(size)
        return made

    @classmethod
    def characters(cls, vocabulary: Sequence[str] = DOCUMENT_VOCABULARY) -> Tokenizer:
        """One token per character; ``vocabulary`` lists the tokens in the order of their ids."""
        ids = {token: number for number, token in enumerate(vocabulary)}
        engine = Engine(models.WordLevel(ids, unk_token=UNKNOWN))
        engine.pre_tokenizer = EVERY_CHARACTER
        engine.decoder = decoders.Fuse()
        engine.post_processor = processors.TemplateProcessing(
            single=f"{START} $A {END}", special_tokens=[(START, ids[START]), (END, ids[END])]
        )
        return cls(engine)

    @classmethod
    def characters_of(cls, texts: Iterable[str]) -> Tokenizer:
        """One token for each character that occurs in ``texts``."""
        return cls.characters([PAD, START, END, *sorted({character for text in texts for character in text})])

    @classmethod
    def decomposed_of(cls, texts: Iterable[str]) -> Tokenizer:
        """One token for each letter, mark or jamo in the characters of ``texts`` (Unicode NFD).

        한 is three tokens, and é is two. Answers are composed again.
        """
        made = cls.characters_of(map(decomposed, texts))
        made.engine.normalizer = normalizers.NFD()
        return cls(made.engine)

    @classmethod
    def symbols(cls, texts: Iterable[str], separator: str = " ") -> Tokenizer:
        """One token for each symbol of ``texts``, such as a phone or a tag; between two of them is the separator."""
        known = sorted({symbol for text in texts for symbol in symbols.cut(text, separator)})
        for name in {PAD, START, END}.intersection(known):
            raise UserError(f"A symbol is written {name}, which is the name of a special token: rename it.")
        made = cls.characters([PAD, START, END, *known])
        made.engine.pre_tokenizer = pre_tokenizers.Split(separator, "removed")
        # The library joins words with a space by its decoder of word pieces; none begins with this prefix.
        between = [] if separator == " " else [decoders.Replace(" ", separator)]
        made.engine.decoder = decoders.Sequence([decoders.WordPiece("\0", False), *between])
        return cls(made.engine)

    @classmethod
    def features(cls, texts: Iterable[str]) -> Tokenizer:
        """One token per character, and one for each feature: a name in angle brackets after a space, as `walk <PST>`."""
        known = {part for text in texts for part in symbols.PARTS.findall(text)}
        made = cls.characters([PAD, START, END, *sorted(known)])
        made.engine.pre_tokenizer = FEATURES
        return cls(made.engine)

    @classmethod
    def bytes(cls) -> Tokenizer:
        """One token for each byte of UTF-8: it takes any text and needs no training."""
        names = [PAD, START, END, *BYTES]
        model = models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True)
        return cls._of_pieces(json.loads(Engine(model).to_str()))

    @classmethod
    def of_file(cls, path: Path) -> Tokenizer:
        """Wrap a tokenizer that was trained with the ``tokenizers`` library; start and end tokens are added."""
        found = limits.read_engine(path)
        ends = [found.token_to_id(name) for name in (START, END)]
        if found.padding is None and found.token_to_id(PAD) is not None and found.encode("").ids == ends:
            return cls(found)  # seq2see made it
        found.add_special_tokens([AddedToken(name, special=True) for name in (PAD, START, END)])
        return cls.of_others(found, [START], [END], PAD, found.get_vocab_size())

    @classmethod
    def words(cls, texts: Iterable[str], min_frequency: int = 2, vocabulary: int | None = None) -> Tokenizer:
        """One token per word as in document 003: in lower case, punctuation split off; a rarer word is ``<unk>``."""
        engine = Engine(models.WordLevel({}, unk_token=UNKNOWN))
        engine.normalizer, engine.pre_tokenizer = normalizers.Lowercase(), WORDS
        counts = Counter(word for text in texts for word in _words(engine, text))
        known = [word for word, count in counts.most_common() if count >= min_frequency]
        names = [PAD, START, END, UNKNOWN, *known][:vocabulary]
        engine.model = models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=UNKNOWN)
        engine.post_processor = _between(names.index)
        return cls(engine)

    @classmethod
    def whole_words(cls, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """One token per word, with the space before it; a rare word is spelled by characters or bytes.

        Nothing of a text is lost. A word occurs twice at least; characters take a quarter of ``vocabulary`` at most.
        """
        counts = Counter(word for text in texts for word, _ in PIECES.pre_tokenize_str(text))
        characters = Counter(character for word in counts for character in word)
        found = [name for name, _ in characters.most_common(max(0, vocabulary - len(BYTES)) // 4)]
        known = {*found}
        frequent = (word for word, count in counts.most_common() if count > 1 and word not in known)
        found += islice(frequent, max(0, _enough(vocabulary) - len(BYTES) - 3 - len(found)))
        # The library takes the pieces with the largest sum: a whole word, else the fewest pieces.
        pieces = [(name, 0.0) for name in (PAD, START, END)] + [(byte, -20.0) for byte in BYTES]
        pieces += [(name, -2.0 if name in known else -1.5) for name in found]
        engine = Engine(models.Unigram(pieces, unk_id=0, byte_fallback=True))
        engine.pre_tokenizer = pre_tokenizers.Sequence([PIECES])  # by which ``kind`` knows it
        return cls._of_pieces(json.loads(engine.to_str()))

    @classmethod
    def bpe(cls, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """Sub-words by byte-pair encoding, ``vocabulary`` at most; rare characters become bytes, nothing ``<unk>``."""
        engine = Engine(models.BPE(byte_fallback=True))
        engine.pre_tokenizer = PIECES
        trainer = trainers.BpeTrainer(
            vocab_size=_enough(vocabulary),
            min_frequency=2,
            limit_alphabet=(vocabulary - len(BYTES)) // 2,
            special_tokens=[PAD, START, END, *BYTES],
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer)
        return cls._of_pieces(json.loads(engine.to_str()))

    @classmethod
    def unigram(cls, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """Sub-words by a unigram language model, as SentencePiece's; rare characters become bytes, nothing ``<unk>``."""
        engine = Engine(models.Unigram())
        engine.pre_tokenizer = PIECES
        trainer = trainers.UnigramTrainer(
            vocab_size=_enough(vocabulary) - len(BYTES),
            special_tokens=[PAD, START, END],
            unk_token=PAD,  # the library requires one; with byte fallback it never occurs
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer)
        form = json.loads(engine.to_str())
        pieces = form["model"]["vocab"]
        rare = min(score for _, score in pieces) - 10  # any piece is better than a byte
        form["model"]["vocab"] = [*pieces[:3], *([byte, rare] for byte in BYTES), *pieces[3:]]
        form["model"] |= {"unk_id": 0, "byte_fallback": True}
        return cls._of_pieces(form)

    @classmethod
    def wordpiece(cls, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """Sub-words as in BERT, with ``##`` before a continuation; a word that cannot be spelled is ``<unk>``."""
        engine = Engine(models.WordPiece(unk_token=UNKNOWN))
        engine.pre_tokenizer = pre_tokenizers.Whitespace()
        names = [PAD, START, END, UNKNOWN]
        engine.train_from_iterator(
            texts, trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=names, show_progress=False)
        )
        return cls._of_pieces(json.loads(engine.to_str()), decoders.WordPiece())

    @classmethod
    def _of_pieces(cls, form: dict[str, Any], decoder: Any = BYTES_TO_TEXT) -> Tokenizer:
        """Make a tokenizer of a trained model, with special tokens that are not matched in texts."""
        form["added_tokens"] = []
        engine = Engine.from_str(json.dumps(form))
        engine.decoder = decoder
        engine.post_processor = _between([PAD, START, END].index)
        return cls(engine)

    @property
    def kind(self) -> str:
        """The kind: characters, symbols, words, bytes, bpe …; for an imported tokenizer, its program."""
        name = type(self.engine.model).__name__
        if not self.own:
            names = {"Unigram": "sentencepiece", "WordLevel": "list"}
            over = "byte-level" if "ByteLevel" in repr(self.engine.pre_tokenizer) else "subword"
            return names.get(name) or f"{'sentencepiece' if self.spaces else over} bpe"
        if name == "WordLevel":
            if self.separator is not None:
                return "symbols" if self.separator == " " else f"symbols:{self.separator}"
            if self.engine.normalizer is not None:
                return "decomposed" if self.cut is decomposed else "small words"
            return "features" if self.cut is not str else "characters"
        if name == "Unigram" and isinstance(self.engine.pre_tokenizer, pre_tokenizers.Sequence):
            return "words"
        return "bytes" if self.size == 3 + len(BYTES) and self.has_bytes else name.lower()

    def untabbed(self, text: str) -> str:
        """Return a text with the features after its tab, ``walk<TAB>V;PST``, as symbols, if this tokenizer has them."""
        has_features = "\t" in text and self.kind == "features"
        return symbols.with_features(text.split("\t")) if has_features else text

    def vocabulary(self) -> list[str]:
        """Return all tokens in the order of their ids."""
        return self.tokens(range(self.size))

    def check(self, text: str) -> None:
        """Raise an InputError if the text has a character or a symbol without a token."""
        if self.has_bytes or self.unknown is not None:
            return
        if not self.own:
            try:
                self.engine.encode(text)
            except Exception as error:  # the library raises bare Exception
                raise InputError(f"{shown(text)} cannot be split into this model's tokens ({error}).") from None
            return
        if self.letters is not None and self.letters.keys() >= set(self.cut(text)):
            return
        known: Any = self.letters if self.letters is not None else self.engine.get_vocab()
        for index, part in enumerate(self.cut(text)):
            if part not in known:
                what = (
                    f"{part!r} (U+{ord(part):04X}) at character {index + 1}"
                    if len(part) == 1 and self.separator is None
                    else f"the symbol {shown(part.strip())}"
                )
                raise InputError(f"{shown(text)} has {what}, which this model's vocabulary does not have.")

    def knows(self, text: str) -> bool:
        """Whether every character or symbol of a text has a token."""
        try:
            self.check(text)
        except InputError:
            return False
        return True

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids, ``<sos>`` first and ``<eos>`` last."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Turn many texts into ids; call ``check`` on those from outside first."""
        if self.letters is not None:
            try:  # one look-up per character: ten times as fast as the library, with the same result
                known = self.letters.__getitem__
                return [[self.start, *map(known, self.cut(text)), self.end] for text in texts]
            except KeyError:
                pass  # the library handles unknown ones
        rows = [encoding.ids for encoding in self.engine.encode_batch_fast(list(texts))]
        if self.own:
            return rows
        return [[i if i < self.size else self._known(i) for i in row] for row in rows]

    def _known(self, number: int) -> int:
        assert self.unknown is not None
        return self.unknown

    def words_of(self, text: str) -> list[str]:
        """Split a text into the units that sub-words may not cross."""
        return [word for word, _ in self.engine.pre_tokenizer.pre_tokenize_str(text)]

    def parts_of(self, words: Sequence[str]) -> list[list[int]]:
        """Return the smallest parts of each word, before any merge: its characters, or the bytes of rare ones."""
        ids: dict[str, int] = self.engine.get_vocab()
        of_character = {
            c: [ids[c]] if c in ids else [ids[BYTES[byte]] for byte in c.encode()] for word in words for c in word
        }
        return [[number for c in word for number in of_character[c]] for word in words]

    def merges(self) -> list[tuple[int, int, int]]:
        """Return BPE's merges, best first: two tokens, and the token they become."""
        ids: dict[str, int] = self.engine.get_vocab()
        pairs = json.loads(self.engine.to_str())["model"]["merges"]
        return [(ids[first], ids[second], ids[first + second]) for first, second in pairs]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the position in the text of each id of ``encode``: (first character, one past the last)."""
        offsets: list[tuple[int, int]] = self.engine.encode(text).offsets
        first, last = len(self.before), len(offsets) - len(self.after)
        end = (len(text), len(text))
        return [*[(0, 0)] * first, *offsets[first:last], *[end] * len(self.after)]

    def plain(self, text: str) -> str:
        """Return a text in the form of this tokenizer's answers: words lose their capitals."""
        if self.separator is not None:
            return self.separator.join(self.cut(text))
        return " ".join(_words(self.engine, text)) if self.kind == "small words" else text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id: ``[65, 1, 66]`` is ``['<sos>', '1', '<eos>']``."""
        return [str(self.engine.id_to_token(number)) for number in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into plain text; special tokens are left out."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Turn many rows of ids into plain texts."""
        silent = {*self.before, *self.after, self.start, self.pad}
        if self.letters is not None:
            between = self.separator or ""
            texts = [between.join([self.names[i] for i in row if i not in silent]) for row in rows]
            return [fold(text) for text in texts] if self.cut is decomposed else texts
        texts = self.engine.decode_batch([_without(row, silent) for row in rows])
        return [text.strip() for text in texts] if self.spaces else texts

    def raw(self, ids: Sequence[int], length: int = 0) -> str:
        """Write ids with their special tokens, and padded: ``<sos>May 1, 1845<eos><pad>``."""
        return "".join(self.tokens([*ids, *[self.pad] * (length - len(ids))]))

    def to_json(self) -> str:
        """Write the library's own JSON format."""
        if self.own:
            return str(self.engine.to_str(pretty=True))
        try:
            self.engine.enable_padding(pad_id=self.pad, pad_token=self.tokens([self.pad])[0])
            return str(self.engine.to_str(pretty=True))
        finally:
            self.engine.no_padding()

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read the tokenizer of a model folder."""
        engine = limits.read_engine(path)
        try:
            return cls(engine)
        except (KeyError, TypeError, ValueError) as error:
            why = shown(str(error), 200)
            raise FolderError(f"{path.name} is not a tokenizer that can be read ({why}).") from None


def _between(number_of: Any) -> processors.TemplateProcessing:
    """Put ``<sos>`` before and ``<eos>`` after every text."""
    return processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, number_of(START)), (END, number_of(END))]
    )


def _words(engine: Engine, text: str) -> list[str]:
    """Prepare a text and split it into words."""
    prepared = engine.normalizer.normalize_str(text)
    return [word for word, _ in engine.pre_tokenizer.pre_tokenize_str(prepared)]


def _enough(vocabulary: int) -> int:
    """Return the size of a vocabulary of sub-words if it exceeds the bytes."""
    least = 2 * len(BYTES)
    if vocabulary < least:
        raise UserError(
            f"A vocabulary of {vocabulary:,} is too small for sub-words: at least {least} was expected (256 are bytes)."
        )
    return vocabulary


def _looked_up(engine: Engine) -> tuple[Callable[[str], Iterable[str]], str | None] | None:
    """Return how to split a text into the names of its tokens, and the separator, if a look-up gives the library's
    result.
    """
    if (
        not isinstance(engine.model, models.WordLevel)
        or not isinstance(engine.normalizer, normalizers.NFD | None)
        or engine.get_added_tokens_decoder()
        or not isinstance(engine.pre_tokenizer, pre_tokenizers.Split)
    ):
        return None
    split = json.loads(engine.pre_tokenizer.__getstate__())
    if engine.normalizer is not None:
        by_character = split == json.loads(EVERY_CHARACTER.__getstate__())
        return (decomposed, None) if by_character and isinstance(engine.decoder, decoders.Fuse) else None
    separator = split["pattern"].get("String")
    if separator and split["behavior"] == "Removed" and not split["invert"]:
        return partial(symbols.cut, separator=separator), separator
    if isinstance(engine.decoder, decoders.Fuse):
        for known, cut in ((EVERY_CHARACTER, str), (FEATURES, symbols.PARTS.findall)):
            if split == json.loads(known.__getstate__()):
                return cut, None
    return None
