"""What a browser shows: a trace described as data, the page's own files, and both together as a single file."""

from pathlib import Path

STATIC = Path(__file__).parent / "static"

#: A model of up to so many parameters sends everything at once, as float32. A larger model sends its attention weights as
#: bytes first, and other values when the page asks for them.
SMALL = 100_000
#: The modules of the model that runs in the page, each after those that it imports. The page imports weights.js too.
WORKER = (
    "tensors.js", "fast.js", "model.js", "weights.js", "tokenizer.js", "sentencepiece.js", "reading.js", "search.js",
    "reader.js", "edits.js", "learn.js", "answer.js", "trainer.js", "worker.js",
)  # fmt: skip
