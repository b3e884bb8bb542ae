import torch


def mask(ids, pad):
    length = ids.shape[-1]
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    return earlier & (ids != pad)[..., None, :]
