"""pc(black) = y(black)·√d_model + PE(2): what a model reads for the word black at position 2."""

from vectors import added, black_and_brown, positional_encoding, shown

black, _ = black_and_brown()
print(f"pc(black) = {shown(added(black, positional_encoding(2)), 4)}")
