"""What the scripts share: positions, cosines, and word vectors from OpenAI or counted in words.txt, without packages."""

import json
import math
import os
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

D_MODEL = 512
MODEL = "text-embedding-3-small"
NO_KEY = "There is no OPENAI_API_KEY, neither in the environment nor in a file .env here (a line OPENAI_API_KEY=sk-…)."


def positional_encoding(position, d_model=D_MODEL, doubled=False):
    """Return PE(position): the paper's, or with its exponent taken twice, as the introduction computes it."""
    numbers = []
    for even in range(0, d_model, 2):
        angle = position / 10000 ** ((2 * even if doubled else even) / d_model)
        numbers += [math.sin(angle), math.cos(angle)]
    return numbers


def cosine(a, b):
    """Return the cosine of the angle between two vectors."""
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def added(word, position):
    """Return what a model reads: the word's vector times √d_model, plus the position's."""
    return [y * math.sqrt(len(word)) + pe for y, pe in zip(word, position, strict=True)]


def setting(name):
    """Read a setting from the environment or from .env."""
    lines = Path(".env").read_text(encoding="utf-8").splitlines() if Path(".env").is_file() else []
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    found = {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}
    return os.environ.get(name) or found.get(name)


def openai_vectors(texts, dimensions=None):
    """Ask OpenAI for the vectors of some texts. Without a key, end with a word about it."""
    key = setting("OPENAI_API_KEY") or sys.exit(NO_KEY)
    address = (setting("OPENAI_BASE_URL") or "https://api.openai.com/v1") + "/embeddings"
    body = {"input": texts, "model": MODEL} | ({"dimensions": dimensions} if dimensions else {})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            data = json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{address} refused the request: status {error.code}.")
    except OSError as error:
        sys.exit(f"{address} cannot be reached: {error}.")
    return [item["embedding"] for item in sorted(data, key=lambda item: item["index"])]


def counted_vectors(*words):
    """Return in how many lines of words.txt each other word stands beside each of some words: words used alike are near.

    A word that most lines have, such as *the*, says nothing and is not counted.
    """
    lines = [
        set(line.split()) for line in (Path(__file__).parent / "words.txt").read_text(encoding="utf-8").splitlines()
    ]
    everywhere = Counter(word for line in lines for word in line)
    counted = sorted(word for word in everywhere if 2 * everywhere[word] <= len(lines))
    for word in words:
        if word not in counted:
            sys.exit(f"words.txt has no {word!r}: give words that it has, such as king, queen and bread.")
    return [
        [sum({word, other} <= line for line in lines) if other != word else 0 for other in counted] for word in words
    ]


def made_vectors():
    """Return two vectors of length 1 for black and brown, not OpenAI's: with their cosine, 0.5690, and no meaning."""
    one = [math.sin(i * i + 1) for i in range(D_MODEL)]
    black = [x / math.hypot(*one) for x in one]
    other = [math.cos(i * i + i) for i in range(D_MODEL)]
    shared = sum(x * y for x, y in zip(black, other, strict=True))
    rest = [x - shared * y for x, y in zip(other, black, strict=True)]
    brown = [0.5690 * x + math.sqrt(1 - 0.5690**2) * y / math.hypot(*rest) for x, y in zip(black, rest, strict=True)]
    return [black, brown]


def black_and_brown():
    """Return the vectors of black and brown, 512 numbers each; without a key, made ones."""
    if setting("OPENAI_API_KEY"):
        return openai_vectors(["black", "brown"], D_MODEL)
    print(NO_KEY, "Made vectors with the same cosine stand for black and brown.", file=sys.stderr)
    return made_vectors()


def shown(numbers, count=8):
    """Write the first and the last numbers of a vector."""
    first, last = (", ".join(f"{x:.8e}" for x in part) for part in (numbers[:count], numbers[-count:]))
    return f"[{first}, …, {last}]"
