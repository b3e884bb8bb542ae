import torch.nn.functional as F


def training_step(model, optimiser, source, target, pad):
    logits = model(source, target[:, :-1])
    right = target[:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), right.flatten(), ignore_index=pad)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()
