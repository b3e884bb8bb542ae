/**
 * The Transformer of “Attention Is All You Need” (Vaswani et al., 2017), as it runs in the page.
 *
 * It computes what seq2see’s PyTorch model computes, under the same names. Each value passes through `keep(name, value)`
 * on its way. `keep` may record it, or return another value to continue with.
 *
 * Legend: S source length, T target length, D d_model, H heads, K d_k (or d_v), F d_ff, V vocabulary.
 */

import { ACTIVATIONS, add, below, layerNorm, linear, map, part, pick, softmax, stacked, swapped, transposed } from "./tensors.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {(name: string, value: Tensor) => Tensor} Keep */
/** Keys and values of one attention, (S, H, K). @typedef {{k: Tensor, v: Tensor}} Pair */
/** What the decoder has read: the keys and values of each layer. @typedef {{length: number, layers: {own?: Pair, cross?: Pair}[]}} Cache */

/** @type {Record<string, number>} */
const FIRST = { fairseq: 2, opennmt: 1 }; // the number of the first position, where it is not 0

/**
 * The sines and cosines of one position (section 3.5): PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same.
 * Models of others have all sines before all cosines; fairseq and OpenNMT have other rates too, and compute in 32 bits.
 * @returns {Float32Array}
 */
export function sinusoids(/** @type {number} */ position, /** @type {number} */ width, order = "paper") {
  const found = new Float32Array(width);
  const { fround } = Math;
  for (let i = 0; i < width / 2; i += 1) {
    const angle = order in FIRST
      ? fround((position + FIRST[order]) * fround(Math.exp(fround(-i * fround(Math.log(10000) / (width / 2 - 1))))))
      : position / 10000 ** ((2 * i) / width);
    found[order === "paper" ? 2 * i : i] = Math.sin(angle);
    found[order === "paper" ? 2 * i + 1 : i + width / 2] = Math.cos(angle);
  }
  return found;
}

export class Transformer {
  /**
   * @param {any} config the settings of the model, by the names of its config.toml
   * @param {Map<string, Tensor>} weights by their names in PyTorch; a table that is shared is there once
   * @param {typeof linear} product how x·Wᵀ + b is computed
   */
  constructor(config, weights, product = linear) {
    this.config = config;
    this.weights = weights;
    this.product = product;
    /** @type {Keep} */ this.keep = (name, value) => value;
  }

  weight(/** @type {string} */ name) {
    const shared = name === "output.weight" && this.config.share_output ? "decoder.embedding.table.weight" : name;
    const found = this.weights.get(shared) ?? (this.config.share_embeddings ? this.weights.get(shared.replace("decoder", "encoder")) : undefined);
    if (!found) throw new Error(`The weights have no ${name}.`);
    return found;
  }

  /** A learned matrix times each row, plus a learned bias. */
  linear(/** @type {string} */ path, /** @type {Tensor} */ x) {
    return this.product(x, this.weight(`${path}.weight`), this.weights.get(`${path}.bias`));
  }

  norm(/** @type {string} */ path, /** @type {Tensor} */ x) {
    return layerNorm(x, this.weight(`${path}.weight`), this.weight(`${path}.bias`));
  }

  /** Token ids to vectors that know their place: √D·E[id] + PE(pos) (sections 3.4 and 3.5). @returns {Tensor} (T, D) */
  embedding(/** @type {string} */ path, /** @type {number[]} */ ids, place = 0) {
    const { d_model: width, positions: order, scale_embeddings: scaled, embedding_norm: normed } = this.config;
    const numbers = this.keep(`${path}.ids`, { shape: [ids.length], data: Float32Array.from(ids) });
    const rows = pick(this.weight(`${path}.table.weight`), [...numbers.data]);
    const embedded = this.keep(`${path}.embedded`, { shape: rows.shape, data: Float32Array.from(rows.data) });
    let x = this.keep(`${path}.scaled`, scaled === false ? embedded : map(embedded, (value) => value * Math.sqrt(width)));
    const places = ids.map((_, index) => place + index);
    const table = order === "learned" ? pick(this.weight(`${path}.positions`), places)
      : { shape: [ids.length, width], data: Float32Array.from(places.flatMap((position) => [...sinusoids(position, width, order)])) };
    x = this.keep(`${path}.sum`, add(x, this.keep(`${path}.positions`, table)));
    return normed ? this.keep(`${path}.normed`, this.norm(`${path}.norm`, x)) : x;
  }

  /** Cut the last dimension into heads: (T, H·K) to (T, H, K). @returns {Tensor} */
  split(/** @type {Tensor} */ { shape: [rows, width], data }) {
    return { shape: [rows, this.config.heads, width / this.config.heads], data };
  }

  /**
   * Attention of many heads (section 3.2.2): each position of x (T, D) gathers from `source` (S, D).
   * `known` holds keys and values that were computed before: of self-attention those of the tokens read so far, to which the new
   * ones are added; of cross-attention all. Returns the result, (T, D), and the keys and values for the next time.
   * @returns {{out: Tensor, pair: Pair}}
   */
  attention(/** @type {string} */ path, /** @type {Tensor} */ x, /** @type {Tensor} */ source, /** @type {Pair|undefined} */ known, causal = false) {
    const project = (/** @type {string} */ matrix, /** @type {Tensor} */ from) => this.split(this.linear(`${path}.${matrix}`, from));
    const own = x === source;
    let pair = known;
    if (own || !pair) {
      const [k, v] = [project("w_k", source), project("w_v", source)];
      pair = pair ? { k: below(pair.k, k), v: below(pair.v, v) } : { k, v };
    }
    const q = this.keep(`${path}.q`, project("w_q", x)); // (T, H, K)
    const k = this.keep(`${path}.k`, pair.k); // (S, H, K)
    const v = this.keep(`${path}.v`, pair.v);
    const z = this.keep(`${path}.z`, this.weighted(path, q, k, v, causal)); // (T, H, K)
    const side = { shape: [z.shape[0], z.shape[1] * z.shape[2]], data: z.data };
    return { out: this.keep(`${path}.out`, this.linear(`${path}.w_o`, side)), pair };
  }

  /** Scaled dot-product attention, softmax(Q·Kᵀ / √d_k)·V, step by step (section 3.2.1, equation 1). @returns {Tensor} */
  weighted(/** @type {string} */ path, /** @type {Tensor} */ q, /** @type {Tensor} */ k, /** @type {Tensor} */ v, /** @type {boolean} */ causal) {
    const [T, H, K] = q.shape;
    const S = k.shape[0];
    const [queries, keys, values] = [q, k, v].map(swapped); // (H, T, K), (H, S, K)
    const heads = Array.from({ length: H }, (_, h) => h);
    const products = stacked(heads.map((h) => this.product(part(queries, h), part(keys, h)))); // Q·Kᵀ, (H, T, S)
    const scores = this.keep(`${path}.scores`, products);
    const scaled = this.keep(`${path}.scaled`, map(scores, (score) => score / Math.sqrt(K)));
    // A token may not look at what comes after it. The last query stands at the last key, also if earlier queries are not asked again.
    const later = (/** @type {number} */ index) => index % S > (Math.floor(index / S) % T) + S - T;
    const masked = this.keep(`${path}.masked`, causal ? map(scaled, (score, index) => (later(index) ? -Infinity : score)) : scaled);
    const weights = this.keep(`${path}.weights`, softmax(masked));
    const means = stacked(heads.map((h) => this.product(part(weights, h), transposed(part(values, h))))); // A·V, (H, T, K)
    return swapped(means); // (T, H, K)
  }

  /** The same two-layer network at every position: max(0, x·W₁ + b₁)·W₂ + b₂ (section 3.3, equation 2). @returns {Tensor} */
  feedForward(/** @type {string} */ path, /** @type {Tensor} */ x) {
    const hidden = this.keep(`${path}.hidden`, map(this.linear(`${path}.w_1`, x), ACTIVATIONS[this.config.activation])); // (T, F)
    return this.keep(`${path}.out`, this.linear(`${path}.w_2`, hidden)); // (T, D)
  }

  /** A residual sum and a layer norm around a sub-layer (section 3.1): the norm after the sum, as in the paper, or before the sub-layer. @returns {Tensor} */
  addNorm(/** @type {string} */ path, /** @type {Tensor} */ x, /** @type {(x: Tensor) => Tensor} */ sublayer) {
    if (this.config.norm === "pre") {
      const y = this.keep(`${path}.normed`, this.norm(`${path}.norm`, x));
      return this.keep(`${path}.out`, add(x, sublayer(y)));
    }
    const sum = this.keep(`${path}.sum`, add(x, sublayer(x)));
    return this.keep(`${path}.out`, this.norm(`${path}.norm`, sum));
  }

  /** Source ids to memory, the vectors that the decoder attends to. @returns {Tensor} (S, D) */
  encode(/** @type {number[]} */ ids) {
    let x = this.embedding("encoder.embedding", ids);
    for (let n = 0; n < this.config.encoder_layers; n += 1) {
      const layer = `encoder.layers.${n}`;
      x = this.addNorm(`${layer}.self_attention_norm`, x, (y) => this.attention(`${layer}.self_attention`, y, y, undefined).out);
      x = this.addNorm(`${layer}.feed_forward_norm`, x, (y) => this.feedForward(`${layer}.feed_forward`, y));
    }
    return this.keep("encoder.memory", this.config.norm === "pre" ? this.norm("encoder.norm", x) : x);
  }

  /**
   * Target ids and memory to logits for the token after each position, (T, V). With a cache the ids are only those that are new;
   * the cache is not changed, and the one that is returned knows them too, so that a beam can go on from it in several ways.
   * @returns {{logits: Tensor, cache: Cache}}
   */
  decode(/** @type {number[]} */ ids, /** @type {Tensor} */ memory, /** @type {Cache} */ cache = { length: 0, layers: [] }) {
    /** @type {Cache} */ const next = { length: cache.length + ids.length, layers: [] };
    let x = this.embedding("decoder.embedding", ids, cache.length);
    for (let n = 0; n < this.config.decoder_layers; n += 1) {
      const layer = `decoder.layers.${n}`;
      /** @type {{own?: Pair, cross?: Pair}} */ const pairs = {};
      x = this.addNorm(`${layer}.self_attention_norm`, x, (y) => {
        const { out, pair } = this.attention(`${layer}.self_attention`, y, y, cache.layers[n]?.own, true);
        pairs.own = pair;
        return out;
      });
      x = this.addNorm(`${layer}.cross_attention_norm`, x, (y) => {
        const { out, pair } = this.attention(`${layer}.cross_attention`, y, memory, cache.layers[n]?.cross);
        pairs.cross = pair;
        return out;
      });
      x = this.addNorm(`${layer}.feed_forward_norm`, x, (y) => this.feedForward(`${layer}.feed_forward`, y));
      next.layers.push(pairs);
    }
    return { logits: this.keep("logits", this.output(this.keep("decoder.out", this.lastNorm(x)))), cache: next };
  }

  /** The norm at the end of a stack, which only a model with its norms before the sub-layers has. */
  lastNorm(/** @type {Tensor} */ x) {
    return this.config.norm === "pre" ? this.norm("decoder.norm", x) : x;
  }

  /** What the decoder says, (T, D), to a number for each token that might come next, (T, V) (section 3.4). */
  output(/** @type {Tensor} */ x) {
    return this.linear("output", x);
  }
}
