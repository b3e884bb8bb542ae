"""How alike two words are: `python cosine_similarity.py [WORD WORD]`, by OpenAI's vectors or by counting in words.txt.

What is counted is which words stand in one line: king and queen have the same neighbours, king and bread few. These
are not OpenAI's numbers, which know far more text (the introduction prints 0.5905 for king and queen).
"""

import sys

from vectors import NO_KEY, cosine, counted_vectors, openai_vectors, setting

one, other = sys.argv[1:3] or ("king", "queen")
if setting("OPENAI_API_KEY"):
    print(f"Cosine similarity between '{one}' and '{other}': {cosine(*openai_vectors([one, other])):.4f}")
else:
    print(NO_KEY, "Counted in the lines of words.txt instead:")
    a, b, bread = counted_vectors(one, other, "bread")
    print(f"Cosine similarity between '{one}' and '{other}': {cosine(a, b):.4f}")
    print(f"Cosine similarity between '{one}' and 'bread': {cosine(a, bread):.4f}")
