"""The paper's Transformer and nothing else: sublayers → attention, positions → encoder, decoder → transformer.

Masks are data (``masks.py``). What is faster, or more than the paper has, replaces classes of this folder:
``seq2see.kernels``. ``--engine written`` answers with these files alone.

Legend, used in every shape: B batch, S source length, T target length, D d_model, H heads, K d_k (or d_v), F d_ff, V
vocabulary. ``…`` is B for a batch and nothing for a single sentence.
"""
