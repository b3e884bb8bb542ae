"""A picture of the positional encoding: `python positional_encoding_simple.py [PICTURE.png]`. It needs matplotlib."""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from vectors import D_MODEL, positional_encoding

picture = sys.argv[1] if sys.argv[1:] else "positional_encoding.png"
rows = [positional_encoding(position) for position in range(100)]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for column in (64, 65, 128, 129, 192):
    left.plot([row[column] for row in rows], label=f"dimension {column}")
left.set(xlabel="position", title="Five dimensions")
left.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.15))
right.imshow(rows, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
right.set(xlabel="dimension", ylabel="position", title=f"100 positions, {D_MODEL} dimensions")
figure.savefig(picture)
print(f"Written: {picture}")
