"""One interface to every way of cutting text, on the ``tokenizers`` library and its file format."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from seq2see.errors import FolderError, InputError, shown

EVERY_CHARACTER = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
START, END, PAD, UNKNOWN = "<sos>", "<eos>", "<pad>", "<unk>"

#: The 68 tokens of the source documents in their order: 0-9, A-Z, a-z, three signs, three special tokens.
DOCUMENT_VOCABULARY = (
    *string.digits,
    *string.ascii_uppercase,
    *string.ascii_lowercase,
    *"-, ",
    START,
    END,
    PAD,
)


class Tokenizer:
    """Text to ids, ``<sos>`` and ``<eos>`` included, and ids to text."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.engine.no_padding()
        self.engine.no_truncation()
        self.start, self.end, self.pad = (self._special(token) for token in (START, END, PAD))
        self.unknown: int | None = engine.token_to_id(UNKNOWN)
        self.special = {START, END, PAD, UNKNOWN}
        self.letters: dict[str, int] | None = None
        if _one_token_a_character(engine) and engine.encode("").ids == [self.start, self.end]:
            self.letters = {token: i for token, i in engine.get_vocab().items() if len(token) == 1}
            self.names = self.vocabulary()

    def _special(self, token: str) -> int:
        number = self.engine.token_to_id(token)
        if number is None:
            raise FolderError(
                f"The tokenizer has no {token} token: was its tokenizer.json written by seq2see?"
            )
        return int(number)

    @classmethod
    def characters(cls, vocabulary: Sequence[str] = DOCUMENT_VOCABULARY) -> Tokenizer:
        """One token a character; ``vocabulary`` lists the tokens in the order of their ids."""
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

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self.engine.get_vocab_size())

    def vocabulary(self) -> list[str]:
        """Name all tokens in the order of their ids."""
        return self.tokens(range(self.size))

    def check(self, text: str) -> None:
        """Raise an InputError if the text has a character that no token stands for."""
        if self.unknown is None and not (self.letters is not None and self.letters.keys() >= set(text)):
            for index, character in enumerate(text):
                if self.engine.token_to_id(character) is None:
                    raise InputError(
                        f"{shown(text)} has {character!r} (U+{ord(character):04X}) at character {index + 1}, "
                        "which this model's vocabulary does not have."
                    )

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids, ``<sos>`` first and ``<eos>`` last."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Turn many texts into ids; call ``check`` on those from outside first."""
        if self.letters is not None:
            try:  # a look-up a character: ten times as fast as the library, and the same
                return [[self.start, *map(self.letters.__getitem__, text), self.end] for text in texts]
            except KeyError:
                pass  # the library knows what to do with it
        return [encoding.ids for encoding in self.engine.encode_batch_fast(list(texts))]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Name each id: ``[65, 1, 66]`` is ``['<sos>', '1', '<eos>']``."""
        return [str(self.engine.id_to_token(number)) for number in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into plain text; special tokens say nothing."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Turn many rows of ids into plain texts."""
        silent = {self.start, self.end, self.pad}
        if self.letters is not None:
            return ["".join([self.names[i] for i in row if i not in silent]) for row in rows]
        texts: list[str] = self.engine.decode_batch([[i for i in row if i not in silent] for row in rows])
        return texts

    def raw(self, ids: Sequence[int], length: int = 0) -> str:
        """Write ids as the documents do, special tokens shown and padded: ``<sos>May 1, 1845<eos><pad>``."""
        return "".join(self.tokens([*ids, *[self.pad] * (length - len(ids))]))

    def to_json(self) -> str:
        """Write the library's own JSON format."""
        return str(self.engine.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read the library's own JSON format."""
        try:
            return cls(Engine.from_file(str(path)))
        except FolderError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise FolderError(f"{path.name} is not a tokenizer that can be read ({error}).") from None


def _one_token_a_character(engine: Engine) -> bool:
    """Whether the library cuts into characters and does nothing else, so that a look-up does the same."""
    return (
        isinstance(engine.model, models.WordLevel)
        and engine.normalizer is None
        and not engine.get_added_tokens_decoder()
        and isinstance(engine.pre_tokenizer, pre_tokenizers.Split)
        and json.loads(engine.pre_tokenizer.__getstate__()) == json.loads(EVERY_CHARACTER.__getstate__())
        and isinstance(engine.decoder, decoders.Fuse)
    )
