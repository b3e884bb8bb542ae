"""How the texts of both sides are cut into tokens: chosen by the data, or as asked. A cut loses nothing of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, median

from seq2see.data.pairs import Pair
from seq2see.errors import UserError, counted, suggest
from seq2see.tokenizers import symbols
from seq2see.tokenizers.folding import SLOTS
from seq2see.tokenizers.tokenizer import Tokenizer, decomposed

SUBWORDS = ("bpe", "unigram")
LEARNED = ("words", *SUBWORDS)  # kinds whose vocabulary has a size
CLOSED = ("characters", "decomposed", "symbols", "features", "bytes")  # kinds with a token for each part
KINDS = (*CLOSED, *LEARNED)
LOOKED_AT = 2000  # pairs from which the kind of text is found
LEARNED_FROM = 500_000  # most pairs: more take minutes and hardly change the sub-words
FEWER = 2  # ratio of characters to their parts from which a text is split into the parts
#: A text of words has at least so many of two letters or more, and at least this share of its characters are theirs.
FEWEST_WORDS, SHARE_OF_WORDS = 5, 0.5
FEWEST_PARTS = 3  # words, digits and signs of a side that is cut into sub-words
#: The size of a vocabulary of sub-words: 1,000 for 100,000 characters, and twice as many for four times the text.
SMALLEST, LARGEST, CHARACTERS = 1000, 32_000, 100_000
#: Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese.
UNSPACED = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
WORD = re.compile(rf"[{UNSPACED}]{{2}}|[^\W\d_{UNSPACED}]{{2,}}")
PART = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W\d_{UNSPACED}]+|\d|[^\w\s]|_")


@dataclass(frozen=True)
class Cuts:
    """The kinds of both tokenizers, and why."""

    kinds: tuple[str, str]  # for the source and for the target
    shared: bool  # whether both sides have one vocabulary
    vocabulary: int | None  # most tokens, if it was asked
    why: str
    prose: bool = False  # whether texts are translated sentence by sentence

    @property
    def named(self) -> str:
        """Both kinds: ``characters``, or ``characters → symbols``."""
        source, target = self.kinds
        return source if source == target else f"{source} → {target}"

    @property
    def learned(self) -> bool:
        """Whether a side is cut into words or sub-words; imported tokenizers do so, whatever their kind is called."""
        return any(kind.partition(":")[0] not in CLOSED for kind in self.kinds)

    def __str__(self) -> str:
        return f"{self.named} ({self.why})"


def are_sentences(pairs: Sequence[Pair]) -> bool:
    """Whether both sides mostly have three words of letters or more."""
    step = max(1, len(pairs) // LOOKED_AT)
    sides = zip(*pairs[::step], strict=True)
    return all(median(_words(text) for text in side) >= 3 for side in sides)


def are_prose(pairs: Sequence[Pair]) -> bool:
    """Whether both sides mostly end like sentences, so that a longer text can be split into sentences."""
    step = max(1, len(pairs) // LOOKED_AT)
    sides = zip(*pairs[::step], strict=True)
    ended = (median(text.rstrip("\"'”’»)] ").endswith((".", "!", "?", "…", "。")) for text in side) for side in sides)
    return are_sentences(pairs) and all(share > 0.5 for share in ended)


def _words(text: str) -> int:
    return sum(word.strip(".,;:!?\"'«»()…").replace("'", "").isalpha() for word in text.split())


Asked = str | tuple[str, str] | None  # a tokenizer for both sides, or one for each


def kinds_asked(tokenizer: Asked) -> tuple[str, str] | None:
    """Read the requested kinds: ``bpe``, ``characters,symbols``, ``symbols:-``, or a file of the tokenizers library."""
    if tokenizer is None:
        return None
    if isinstance(tokenizer, str):
        found = re.fullmatch(r"(symbols:.|[^,]+)(?:,(symbols:.|[^,]+))?", tokenizer)
        tokenizer = (found[1], found[2] or found[1]) if found else (tokenizer, tokenizer)
    if len(tokenizer) != 2:
        raise UserError(f"`tokenizer` is {tokenizer!r}: one for both sides was expected, or two.")
    for kind in tokenizer:
        name = kind.partition(":")[0]
        if kind.endswith(".json"):
            if not Path(kind).is_file():
                raise UserError(f"There is no file {kind!r}: a file of the tokenizers library was expected.")
        elif kind not in KINDS and (name != "symbols" or len(kind) != len("symbols:x")):
            raise UserError(f"There is no tokenizer {kind!r}. {suggest(kind, [*KINDS, 'symbols:X', 'FILE.json'])}")
    return tokenizer


def fitting(texts: Sequence[str]) -> str:
    """Choose the tokenizer of one side without sub-words: symbols if it consists of them."""
    if symbols.have_features(texts):
        return "features"
    separator = symbols.separator_of(texts)
    if separator is None:
        return "decomposed" if _made_of_few(texts) else "characters"
    return "symbols" if separator == " " else f"symbols:{separator}"


def _made_of_few(texts: Sequence[str]) -> bool:
    """Whether the characters are made of far fewer parts: syllables of jamo, or letters with many marks."""
    characters = set().union(*texts)
    return len(characters) >= FEWER * len(set(decomposed("".join(sorted(characters)))))


def are_words(texts: Sequence[str]) -> bool:
    """Whether these texts mostly consist of several words."""
    found = [WORD.findall(text) for text in texts]
    share = mean(
        sum(map(len, words)) / max(1, len("".join(text.split()))) for words, text in zip(found, texts, strict=True)
    )
    return median(map(len, found)) >= FEWEST_WORDS and share >= SHARE_OF_WORDS


def cuts_of(pairs: Sequence[Pair], tokenizer: Asked = None, vocabulary: int | None = None, whole: bool = True) -> Cuts:
    """Choose how both sides are cut, unless it is asked; ``whole`` says that these are all pairs, not a sample.

    Sub-words shorten texts of words, so that a model sees more of them in the same time. Texts of a few hundred
    symbols have one token for each, and all others one for each character.
    """
    kinds = kinds_asked(tokenizer)
    why = "as given"
    if kinds is None:
        kinds, why = _fitting_both(pairs, whole)
    learned = [kind for kind in kinds if kind in LEARNED]
    if vocabulary is not None and not learned:
        what = "character or symbol" if kinds != ("characters", "characters") else "character"
        raise UserError(
            f"`vocabulary` is {vocabulary:,}, but the tokenizer has one token for each {what} that occurs: leave it "
            "out, or set `tokenizer` to words, bpe or unigram."
        )
    return Cuts(
        kinds=kinds,
        shared=kinds[0] == kinds[1] and (kinds[0] in SUBWORDS or kinds[0].endswith(".json")) and not _two(tokenizer),
        vocabulary=vocabulary,
        why=why,
        prose=kinds[0] in SUBWORDS and are_prose(pairs),
    )


def _fitting_both(pairs: Sequence[Pair], whole: bool) -> tuple[tuple[str, str], str]:
    """Choose the kinds of both sides, and say why."""
    looked_at = pairs[:: max(1, len(pairs) // LOOKED_AT)]
    sides: list[tuple[str, ...]] = list(zip(*looked_at, strict=True))
    parts = min(median(len(PART.findall(text)) for text in side) for side in sides)
    prose = are_prose(looked_at)
    closed = not prose and all(symbols.separator_of(side) is not None for side in sides)
    wordy = [prose or are_words(side) for side in sides]
    if parts >= FEWEST_PARTS and any(wordy) and not closed:
        told = "both sides are" if all(wordy) else "the source is" if wordy[0] else "the target is"
        return ("bpe", "bpe"), f"{told} text of several words"
    if not whole:  # a sample may lack some symbols
        return ("characters", "characters"), "both sides are short, or of signs"
    source, target = (fitting(side) for side in zip(*pairs, strict=True))
    told = "both sides" if source == target else "the sides"
    return (source, target), f"{told} are short, or of signs"


def _size(characters: int) -> int:
    """Return the size of the vocabulary for a text of so many characters."""
    return int(min(LARGEST, max(SMALLEST, SMALLEST * sqrt(characters / CHARACTERS))))


def _two(tokenizer: Asked) -> bool:
    """Whether each side was given a tokenizer of its own: ``bpe,bpe``."""
    return tokenizer is not None and (not isinstance(tokenizer, str) or "," in tokenizer)


def tokenizers_of(
    cuts: Cuts, pairs: Sequence[Pair], everything: Sequence[Pair] | None = None, count: int | None = None
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of both sides; ``count`` is the number of all pairs, if these are a sample.

    Sub-words and words are learned from some of ``pairs``. Characters and symbols come from ``everything``:
    from all pairs of the training, if ``pairs`` is a sample.
    """
    everything = pairs if everything is None else everything
    whole = (count or len(pairs)) / len(pairs)
    pairs = pairs[:: max(1, -(-len(pairs) // LEARNED_FROM))]
    both = [text for side in zip(*pairs, strict=True) for text in side]
    size = cuts.vocabulary or _size(int(whole * sum(map(len, both))))
    if cuts.shared:
        made = (_tokenizer(cuts.kinds[0], size, both),) * 2
    else:
        source, target = (
            _tokenizer(kind, size, [pair[side] for pair in (pairs if kind in LEARNED else everything)])
            for side, kind in enumerate(cuts.kinds)
        )
        made = source, target
    sizes = [one.size for one, kind in zip(made, cuts.kinds, strict=True) if kind in LEARNED]
    if cuts.vocabulary is not None and max(sizes) < 0.9 * cuts.vocabulary:
        raise UserError(
            f"`vocabulary` is {cuts.vocabulary:,}, but {counted(len(pairs), 'pair')} have only "
            f"{max(sizes):,} different tokens (tokenizer {cuts.named}): leave it out, or give less."
        )
    return made


def _tokenizer(kind: str, size: int, texts: Sequence[str]) -> Tokenizer:
    """Make the tokenizer of one side, or of both; one with a token for each part has slots for unknown ones."""
    if kind in SUBWORDS:
        return (Tokenizer.bpe if kind == "bpe" else Tokenizer.unigram)(texts, size)
    if kind == "words":
        return Tokenizer.whole_words(texts, size)
    if kind == "bytes":
        return Tokenizer.bytes()
    if kind.endswith(".json"):
        return Tokenizer.of_file(Path(kind))
    separator = kind[8:] or " " if kind.startswith("symbols") else ""
    texts = [*texts, separator.join(SLOTS)]
    if separator:
        return Tokenizer.symbols(texts, separator)
    if kind == "features":
        return Tokenizer.features(texts)
    if kind == "decomposed":
        return Tokenizer.decomposed_of(texts)
    return Tokenizer.characters_of(texts)
