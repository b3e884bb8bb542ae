import torch


def softmax(x):
    shares = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return shares / shares.sum(dim=-1, keepdim=True)
