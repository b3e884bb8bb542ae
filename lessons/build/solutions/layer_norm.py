import torch


def layer_norm(x, gain, bias, epsilon=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + epsilon) + bias
