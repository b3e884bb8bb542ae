import torch


def greedy_search(source, encode, decode, start, end, longest):
    memory = encode(torch.tensor(source))
    ids = [start]
    while len(ids) <= longest:
        logits = decode(torch.tensor(ids), memory)
        best = int(logits[-1].argmax())
        if best == end:
            break
        ids.append(best)
    return ids[1:]
