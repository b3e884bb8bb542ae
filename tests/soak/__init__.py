"""The proofs behind docs/reliability.md: `make soak` tries to break the product, and counts.

Each module is one kind of proof with a function ``run(tally, root)``. It works in the folder ``root`` and notes in the
tally what it tried and each fault that it found.
"""
