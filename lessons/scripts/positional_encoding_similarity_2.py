"""How alike the positions 2 and 10 are: with the paper's exponent, and with the introduction's, which is taken twice."""

from vectors import cosine, positional_encoding

for name, doubled in (("the paper's exponent", False), ("the exponent taken twice", True)):
    two, ten = (positional_encoding(position, doubled=doubled) for position in (2, 10))
    print(f"cosine_similarity(pos(2), pos(10)) = {cosine(two, ten):.10f} with {name}")
