"""The Transformer of “Attention Is All You Need” in one file: `python lessons/transformer.py [FOLDER] TEXT...`.

FOLDER is a model of `seq2see train dates`, or else the one that ships. T and S count positions, D is d_model, H heads.
"""

import json
import sys
import tomllib
from pathlib import Path

import torch
from safetensors.torch import load_file


class Transformer:
    def __init__(self, folder):
        self.config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))["model"]
        self.ids = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        self.weights = load_file(folder / "model.safetensors")  # each tensor by its name

    def linear(self, name, x):  # x·Wᵀ + b: a stored matrix has a row for each number that it gives
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def embed(self, side, ids):  # √D·E[id] + PE(position), (T, D): sections 3.4 and 3.5
        width = self.config["d_model"]
        angles = torch.arange(len(ids))[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # sine, cosine, sine, …
        return width**0.5 * self.weights[f"{side}.embedding.table.weight"][ids] + positions

    def attention(self, name, x, source, causal=False):  # T positions of x look at S of source: 3.2
        read = {"q": x, "k": source, "v": source}
        q, k, v = (self.linear(f"{name}.w_{letter}", read[letter]) for letter in "qkv")  # (T or S, D)
        q, k, v = (y.view(len(y), self.config["heads"], -1).transpose(0, 1) for y in (q, k, v))  # (H, …, d_k)
        scores = q @ k.transpose(1, 2) / k.shape[-1] ** 0.5  # (H, T, S)
        later = torch.ones(len(x), len(source)).triu(1).bool()  # what a decoder has yet to write
        weights = scores.masked_fill(later & causal, -torch.inf).softmax(-1)  # weights·V is equation 1
        return self.linear(f"{name}.w_o", (weights @ v).transpose(0, 1).flatten(1))  # (T, D)

    def norm(self, name, x):  # each position to mean 0 and variance 1, then a gain and a bias: section 3.1
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        return x * self.weights[f"{name}.norm.weight"] + self.weights[f"{name}.norm.bias"]

    def layer(self, name, x, memory=None):  # LayerNorm(x + Sublayer(x)), in the decoder thrice: Figure 1
        z = self.attention(f"{name}.self_attention", x, x, causal=memory is not None)
        x = self.norm(f"{name}.self_attention_norm", x + z)
        if memory is not None:
            z = self.attention(f"{name}.cross_attention", x, memory)
            x = self.norm(f"{name}.cross_attention_norm", x + z)
        z = self.linear(f"{name}.feed_forward.w_2", self.linear(f"{name}.feed_forward.w_1", x).relu())  # 3.3
        return self.norm(f"{name}.feed_forward_norm", x + z)

    def stack(self, side, ids, memory=None):  # ids to vectors, (T, D): the encoder's are the memory
        x = self.embed(side, ids)
        for number in range(self.config[f"{side}_layers"]):
            x = self.layer(f"{side}.layers.{number}", x, memory)
        return x

    def answer(self, text):  # read the text once, then write the likeliest next token until it is <eos>
        start, end, tokens = self.ids["<sos>"], self.ids["<eos>"], list(self.ids)
        memory = self.stack("encoder", [start, *(self.ids[letter] for letter in text), end])
        written = [start]
        while written[-1] != end and len(written) < self.config["max_length"]:
            written.append(int(self.linear("output", self.stack("decoder", written, memory))[-1].argmax()))
        return "".join(tokens[number] for number in written if number not in (start, end))


if __name__ == "__main__":
    texts, shipped = sys.argv[1:] or sys.exit(__doc__), Path(__file__).parents[1] / "src/seq2see/models/dates"
    folder = Path(texts.pop(0)) if Path(texts[0]).is_dir() else shipped
    print(*map(Transformer(folder).answer, texts), sep="\n")
