def multi_head(x, source, mask, w, heads, attention):
    def cut(y):
        return y.unflatten(-1, (heads, -1)).transpose(-3, -2)

    q = cut(x @ w["q"] + w["b_q"])
    k = cut(source @ w["k"] + w["b_k"])
    v = cut(source @ w["v"] + w["b_v"])
    z = attention(q, k, v, mask)
    return z.transpose(-3, -2).flatten(-2) @ w["o"] + w["b_o"]
