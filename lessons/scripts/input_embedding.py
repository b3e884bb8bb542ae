"""The vector that OpenAI gives to a text: `python input_embedding.py [TEXT]`. It needs a key."""

import sys

from vectors import openai_vectors, shown

text = " ".join(sys.argv[1:]) or "The black cat sat on the couch and the brown dog slept on the couch"
(vector,) = openai_vectors([text])
print(f"{len(vector)} numbers: {shown(vector, 3)}")
