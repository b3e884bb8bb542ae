"""The positions of black (2) and brown (10) in “The black cat sat on the couch and the brown dog slept on the rug”.

With the paper's exponent, and with the introduction's, which is taken twice.
"""

from vectors import positional_encoding, shown

for name, doubled in (("the paper's exponent", False), ("the exponent taken twice", True)):
    print(f"With {name}:")
    for position in (2, 10):
        print(f"PE({position}) = {shown(positional_encoding(position, doubled=doubled))}")
