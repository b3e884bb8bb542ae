import torch


def positions(length, d_model):
    even = torch.arange(0, d_model, 2)
    angles = torch.arange(length)[:, None] / 10000 ** (even / d_model)
    return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(1)
