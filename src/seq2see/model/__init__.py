"""The paper's Transformer. Read upwards: sublayers, masks, attention and positions, encoder and decoder,
transformer. What is fast and says the same once more is apart: fused and kernels.

Legend, used in every shape: B batch, S source length, T target length, D d_model, H heads, K d_k (or d_v),
F d_ff, V vocabulary. ``…`` is B for a padded batch and nothing for a packed one.
"""
