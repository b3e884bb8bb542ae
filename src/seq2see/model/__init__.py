"""The paper's Transformer, for the reader: sublayers → attention, positions → encoder, decoder → transformer.

Masks are data (``masks.py``). Code that is only for speed is in ``fast/``.

Legend, used in every shape: B batch, S source length, T target length, D d_model, H heads, K d_k (or d_v), F d_ff, V
vocabulary. ``…`` is B for a padded batch and nothing for a packed one.
"""
