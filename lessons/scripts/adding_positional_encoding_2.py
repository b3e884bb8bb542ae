"""How alike black at position 2 and brown at position 10 are: words, positions, and the sums that a model reads."""

from vectors import added, black_and_brown, cosine, positional_encoding

black, brown = black_and_brown()
for name, here, there, doubled in (
    ("the paper's exponent", 2, 10, False),
    ("the exponent taken twice", 2, 10, True),
    ("position 2 for both", 2, 2, False),
):
    pe = [positional_encoding(position, doubled=doubled) for position in (here, there)]
    sums = cosine(added(black, pe[0]), added(brown, pe[1]))
    print(f"words {cosine(black, brown):.4f}  positions {cosine(*pe):.4f}  sums {sums:.4f}  with {name}")
