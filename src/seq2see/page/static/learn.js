/**
 * Training: the network of model.js over a whole batch, its backward pass, and Adam (sections 5.3 and 5.4 of the paper).
 *
 * Each operation records its backward pass on a tape. Matrices are rows of numbers; a batch of B texts of T tokens, padded
 * to one length, has B·T rows.
 */

import { sinusoids } from "./model.js";
import { ACTIVATIONS, EPSILON, products } from "./tensors.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */
/** Numbers, and how much the loss changes with each. @typedef {{rows: number, cols: number, data: Float32Array, grad: Float32Array}} Node */
/** Ids of B texts, filled up to the length S or T; `lengths` are those of the sources. @typedef {{size: number, S: number, T: number, source: Int32Array, lengths: Int32Array, read: Int32Array, write: Int32Array}} Batch */
/** @typedef {{beta1: number, beta2: number, epsilon: number, clip: number, label_smoothing: number}} Settings */

/** The slope of each activation. @type {Record<string, (x: number) => number>} */
const SLOPES = {
  relu: (x) => (x > 0 ? 1 : 0),
  gelu: (x) => (x === 0 ? 0.5 : ACTIVATIONS.gelu(x) / x + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI)),
  swish: (x) => {
    const share = 1 / (1 + Math.exp(-x));
    return share * (1 + x * (1 - share));
  },
};

/** Put texts together: sources filled up to one length, targets as what is read and what is to be written. @returns {Batch} */
export function batchOf(/** @type {number[][]} */ sources, /** @type {number[][]} */ targets, /** @type {number} */ pad) {
  const size = sources.length;
  const S = Math.max(...sources.map((ids) => ids.length));
  const T = Math.max(...targets.map((ids) => ids.length)) - 1;
  const fill = (/** @type {number} */ wide, /** @type {(row: number) => number[]} */ of) => {
    const found = new Int32Array(size * wide).fill(pad);
    for (let row = 0; row < size; row += 1) found.set(of(row), row * wide);
    return found;
  };
  return {
    size, S, T, source: fill(S, (row) => sources[row]), lengths: Int32Array.from(sources, (ids) => ids.length),
    read: fill(T, (row) => targets[row].slice(0, -1)), write: fill(T, (row) => targets[row].slice(1)),
  };
}

/** Gradients of x·Wᵀ + b: dX += dY·W, dW += dYᵀ·X, db += the sum of dY. Four rows of W are taken together. */
function productBack(/** @type {Node} */ x, /** @type {Node} */ weight, /** @type {Node|null} */ bias, /** @type {Node} */ y) {
  const [rows, wide, out] = [x.rows, x.cols, y.cols];
  const { data: X, grad: dX } = x;
  const { data: W, grad: dW } = weight;
  const dY = y.grad;
  for (let r = 0; r < rows; r += 1) {
    const from = r * wide;
    const to = r * out;
    let o = 0;
    for (; o + 4 <= out; o += 4) {
      const g0 = dY[to + o];
      const g1 = dY[to + o + 1];
      const g2 = dY[to + o + 2];
      const g3 = dY[to + o + 3];
      if (g0 === 0 && g1 === 0 && g2 === 0 && g3 === 0) continue;
      const w0 = o * wide;
      const w1 = w0 + wide;
      const w2 = w1 + wide;
      const w3 = w2 + wide;
      for (let i = 0; i < wide; i += 1) {
        const value = X[from + i];
        dX[from + i] += g0 * W[w0 + i] + g1 * W[w1 + i] + g2 * W[w2 + i] + g3 * W[w3 + i];
        dW[w0 + i] += g0 * value;
        dW[w1 + i] += g1 * value;
        dW[w2 + i] += g2 * value;
        dW[w3 + i] += g3 * value;
      }
    }
    for (; o < out; o += 1) {
      const g = dY[to + o];
      for (let i = 0; i < wide; i += 1) {
        dX[from + i] += g * W[o * wide + i];
        dW[o * wide + i] += g * X[from + i];
      }
    }
  }
  if (bias) for (let r = 0; r < rows; r += 1) for (let o = 0; o < out; o += 1) bias.grad[o] += dY[r * out + o];
}

export class Learner {
  /**
   * @param {any} config the settings of the model, by the names of its config.toml
   * @param {Map<string, Tensor>} weights by their names in PyTorch; they are changed in place
   * @param {Settings} settings
   */
  constructor(config, weights, settings) {
    this.config = config;
    this.settings = settings;
    /** @type {Map<string, Node>} */ this.parameters = new Map();
    for (const [name, { shape, data }] of weights) {
      this.parameters.set(name, { rows: shape.length > 1 ? shape[0] : 1, cols: shape.at(-1) ?? 1, data, grad: new Float32Array(data.length) });
    }
    /** Adam’s two moments of each parameter. @type {Map<string, [Float32Array, Float32Array]>} */
    this.moments = new Map([...this.parameters].map(([name, { data }]) => [name, [new Float32Array(data.length), new Float32Array(data.length)]]));
    this.steps = 0;
    /** Numbers of earlier steps, which are used again. @type {Map<number, Float32Array[]>} */ this.spare = new Map();
    /** @type {Float32Array[]} */ this.used = [];
    /** @type {(() => void)[]} */ this.tape = [];
    /** @type {Map<string, Float32Array>} */ this.tables = new Map();
  }

  /** @returns {Node} */
  parameter(/** @type {string} */ name) {
    const shared = name === "output.weight" && this.config.share_output ? "decoder.embedding.table.weight" : name;
    const found = this.parameters.get(shared) ?? (this.config.share_embeddings ? this.parameters.get(shared.replace("decoder", "encoder")) : undefined);
    if (!found) throw new Error(`The weights have no ${name}.`);
    return found;
  }

  /** An array of zeros; the arrays of earlier steps are used again. */
  zeros(/** @type {number} */ size) {
    const found = this.spare.get(size)?.pop();
    found?.fill(0);
    const taken = found ?? new Float32Array(size);
    this.used.push(taken);
    return taken;
  }

  /** @returns {Node} */
  node(/** @type {number} */ rows, /** @type {number} */ cols) {
    return { rows, cols, data: this.zeros(rows * cols), grad: this.zeros(rows * cols) };
  }

  linear(/** @type {string} */ path, /** @type {Node} */ x) {
    const weight = this.parameter(`${path}.weight`);
    const bias = this.parameters.get(`${path}.bias`) ?? null;
    const y = this.node(x.rows, weight.rows);
    products(x.data, weight.data, bias ? bias.data : new Float32Array(y.cols), y.data, x.rows, x.cols, y.cols);
    this.tape.push(() => productBack(x, weight, bias, y));
    return y;
  }

  add(/** @type {Node} */ x, /** @type {Node} */ y) {
    const z = this.node(x.rows, x.cols);
    for (let i = 0; i < z.data.length; i += 1) z.data[i] = x.data[i] + y.data[i];
    this.tape.push(() => {
      for (let i = 0; i < z.grad.length; i += 1) {
        x.grad[i] += z.grad[i];
        y.grad[i] += z.grad[i];
      }
    });
    return z;
  }

  activation(/** @type {Node} */ x) {
    const [f, slope] = [ACTIVATIONS[this.config.activation], SLOPES[this.config.activation]];
    const y = this.node(x.rows, x.cols);
    for (let i = 0; i < y.data.length; i += 1) y.data[i] = f(x.data[i]);
    this.tape.push(() => {
      for (let i = 0; i < y.grad.length; i += 1) x.grad[i] += y.grad[i] * slope(x.data[i]);
    });
    return y;
  }

  norm(/** @type {string} */ path, /** @type {Node} */ x) {
    const [gain, shift] = [this.parameter(`${path}.weight`), this.parameter(`${path}.bias`)];
    const wide = x.cols;
    const y = this.node(x.rows, wide);
    const unit = this.zeros(x.rows); // 1 over the deviation of each row
    const hat = this.zeros(x.rows * wide); // the rows with mean 0 and variance 1
    for (let r = 0; r < x.rows; r += 1) {
      const from = r * wide;
      let mean = 0;
      for (let i = 0; i < wide; i += 1) mean += x.data[from + i];
      mean /= wide;
      let variance = 0;
      for (let i = 0; i < wide; i += 1) variance += (x.data[from + i] - mean) ** 2;
      unit[r] = 1 / Math.sqrt(variance / wide + EPSILON);
      for (let i = 0; i < wide; i += 1) {
        hat[from + i] = (x.data[from + i] - mean) * unit[r];
        y.data[from + i] = hat[from + i] * gain.data[i] + shift.data[i];
      }
    }
    this.tape.push(() => {
      for (let r = 0; r < x.rows; r += 1) {
        const from = r * wide;
        let [sum, along] = [0, 0];
        for (let i = 0; i < wide; i += 1) {
          const g = y.grad[from + i];
          gain.grad[i] += g * hat[from + i];
          shift.grad[i] += g;
          sum += g * gain.data[i];
          along += g * gain.data[i] * hat[from + i];
        }
        for (let i = 0; i < wide; i += 1) x.grad[from + i] += unit[r] * (y.grad[from + i] * gain.data[i] - sum / wide - (hat[from + i] * along) / wide);
      }
    });
    return y;
  }

  /** Token ids to embeddings with positions. */
  embedding(/** @type {string} */ path, /** @type {Int32Array} */ ids, /** @type {number} */ length) {
    const { d_model: wide, positions: order, scale_embeddings: scaled, embedding_norm: normed } = this.config;
    const table = this.parameter(`${path}.table.weight`);
    const scale = scaled === false ? 1 : Math.sqrt(wide);
    const learned = order === "learned" ? this.parameter(`${path}.positions`) : null;
    const places = learned ? learned.data : this.positions(length, wide, order);
    const x = this.node(ids.length, wide);
    for (let r = 0; r < ids.length; r += 1) {
      for (let i = 0; i < wide; i += 1) x.data[r * wide + i] = scale * table.data[ids[r] * wide + i] + places[(r % length) * wide + i];
    }
    this.tape.push(() => {
      for (let r = 0; r < ids.length; r += 1) {
        for (let i = 0; i < wide; i += 1) {
          const g = x.grad[r * wide + i];
          table.grad[ids[r] * wide + i] += scale * g;
          if (learned) learned.grad[(r % length) * wide + i] += g;
        }
      }
    });
    return normed ? this.norm(`${path}.norm`, x) : x;
  }

  positions(/** @type {number} */ length, /** @type {number} */ wide, /** @type {string} */ order) {
    const key = `${length} ${order}`;
    if (!this.tables.has(key)) {
      const table = new Float32Array(length * wide);
      for (let place = 0; place < length; place += 1) table.set(sinusoids(place, wide, order), place * wide);
      this.tables.set(key, table);
    }
    return /** @type {Float32Array} */ (this.tables.get(key));
  }

  /**
   * Attention of many heads (equation 1) of T rows to S rows of each of B texts. A row sees the first `lengths` of its text,
   * and if it is `causal` none that comes later.
   */
  attention(/** @type {string} */ path, /** @type {Node} */ x, /** @type {Node} */ source, /** @type {number} */ T, /** @type {number} */ S, /** @type {Int32Array|null} */ lengths) {
    const { heads: H } = this.config;
    const [q, k, v] = [this.linear(`${path}.w_q`, x), this.linear(`${path}.w_k`, source), this.linear(`${path}.w_v`, source)];
    const [K, V] = [q.cols / H, v.cols / H];
    const B = x.rows / T;
    const z = this.node(x.rows, v.cols);
    const A = this.zeros(B * H * T * S);
    const unit = 1 / Math.sqrt(K);
    const each = (/** @type {(b: number, h: number, t: number, seen: number, row: number) => void} */ act) => {
      for (let b = 0; b < B; b += 1) for (let h = 0; h < H; h += 1) for (let t = 0; t < T; t += 1) act(b, h, t, lengths ? lengths[b] : t + 1, ((b * H + h) * T + t) * S);
    };
    each((b, h, t, seen, row) => {
      const from = (b * T + t) * q.cols + h * K;
      let largest = -Infinity;
      for (let s = 0; s < seen; s += 1) {
        const at = (b * S + s) * q.cols + h * K;
        let score = 0;
        for (let i = 0; i < K; i += 1) score += q.data[from + i] * k.data[at + i];
        score *= unit;
        A[row + s] = score;
        if (score > largest) largest = score;
      }
      let total = 0;
      for (let s = 0; s < seen; s += 1) total += A[row + s] = Math.exp(A[row + s] - largest);
      const to = (b * T + t) * v.cols + h * V;
      for (let s = 0; s < seen; s += 1) {
        const share = (A[row + s] /= total);
        const at = (b * S + s) * v.cols + h * V;
        for (let i = 0; i < V; i += 1) z.data[to + i] += share * v.data[at + i];
      }
    });
    this.tape.push(() => {
      const slopes = new Float32Array(S);
      each((b, h, t, seen, row) => {
        const to = (b * T + t) * v.cols + h * V;
        let along = 0;
        for (let s = 0; s < seen; s += 1) {
          const at = (b * S + s) * v.cols + h * V;
          const share = A[row + s];
          let slope = 0;
          for (let i = 0; i < V; i += 1) {
            slope += z.grad[to + i] * v.data[at + i];
            v.grad[at + i] += share * z.grad[to + i];
          }
          slopes[s] = slope;
          along += slope * share;
        }
        const from = (b * T + t) * q.cols + h * K;
        for (let s = 0; s < seen; s += 1) {
          const g = A[row + s] * (slopes[s] - along) * unit;
          const at = (b * S + s) * q.cols + h * K;
          for (let i = 0; i < K; i += 1) {
            q.grad[from + i] += g * k.data[at + i];
            k.grad[at + i] += g * q.data[from + i];
          }
        }
      });
    });
    return this.linear(`${path}.w_o`, z);
  }

  feedForward(/** @type {string} */ path, /** @type {Node} */ x) {
    return this.linear(`${path}.w_2`, this.activation(this.linear(`${path}.w_1`, x)));
  }

  /** A residual sum and a layer norm around a sub-layer. */
  addNorm(/** @type {string} */ path, /** @type {Node} */ x, /** @type {(x: Node) => Node} */ sublayer) {
    return this.config.norm === "pre" ? this.add(x, sublayer(this.norm(`${path}.norm`, x))) : this.norm(`${path}.norm`, this.add(x, sublayer(x)));
  }

  /** The logits of all positions of a batch. */
  forward(/** @type {Batch} */ { S, T, source, lengths, read }) {
    const { encoder_layers: above, decoder_layers: beside, norm } = this.config;
    let x = this.embedding("encoder.embedding", source, S);
    for (let n = 0; n < above; n += 1) {
      const layer = `encoder.layers.${n}`;
      x = this.addNorm(`${layer}.self_attention_norm`, x, (y) => this.attention(`${layer}.self_attention`, y, y, S, S, lengths));
      x = this.addNorm(`${layer}.feed_forward_norm`, x, (y) => this.feedForward(`${layer}.feed_forward`, y));
    }
    const memory = norm === "pre" ? this.norm("encoder.norm", x) : x;
    x = this.embedding("decoder.embedding", read, T);
    for (let n = 0; n < beside; n += 1) {
      const layer = `decoder.layers.${n}`;
      x = this.addNorm(`${layer}.self_attention_norm`, x, (y) => this.attention(`${layer}.self_attention`, y, y, T, T, null));
      x = this.addNorm(`${layer}.cross_attention_norm`, x, (y) => this.attention(`${layer}.cross_attention`, y, memory, T, S, lengths));
      x = this.addNorm(`${layer}.feed_forward_norm`, x, (y) => this.feedForward(`${layer}.feed_forward`, y));
    }
    return this.linear("output", norm === "pre" ? this.norm("decoder.norm", x) : x);
  }

  /** The mean loss of the real tokens of a batch, with label smoothing; its gradients are left in the parameters. */
  gradients(/** @type {Batch} */ batch, /** @type {number} */ pad) {
    for (const { grad } of this.parameters.values()) grad.fill(0);
    const { rows, cols, data, grad } = this.forward(batch);
    const smooth = this.settings.label_smoothing;
    let [real, loss] = [0, 0];
    for (let r = 0; r < rows; r += 1) if (batch.write[r] !== pad) real += 1;
    for (let r = 0; r < rows; r += 1) {
      const right = batch.write[r];
      if (right === pad) continue;
      const from = r * cols;
      let [largest, total, all] = [-Infinity, 0, 0];
      for (let i = 0; i < cols; i += 1) if (data[from + i] > largest) largest = data[from + i];
      for (let i = 0; i < cols; i += 1) {
        total += Math.exp(data[from + i] - largest);
        all += data[from + i] - largest;
      }
      const log = Math.log(total);
      loss += log - (1 - smooth) * (data[from + right] - largest) - (smooth / cols) * all;
      for (let i = 0; i < cols; i += 1) grad[from + i] = (Math.exp(data[from + i] - largest) / total - smooth / cols) / real;
      grad[from + right] -= (1 - smooth) / real;
    }
    for (const back of this.tape.reverse()) back();
    this.tape = [];
    for (const numbers of this.used) {
      const some = this.spare.get(numbers.length);
      if (some) some.push(numbers);
      else this.spare.set(numbers.length, [numbers]);
    }
    this.used = [];
    return loss / real;
  }

  /** Learn from a batch at a rate; return its loss. */
  step(/** @type {Batch} */ batch, /** @type {number} */ pad, /** @type {number} */ rate) {
    const loss = this.gradients(batch, pad);
    const { beta1, beta2, epsilon, clip } = this.settings;
    let squares = 0;
    for (const { grad } of this.parameters.values()) for (let i = 0; i < grad.length; i += 1) squares += grad[i] * grad[i];
    const scale = clip > 0 ? Math.min(1, clip / (Math.sqrt(squares) + 1e-6)) : 1;
    this.steps += 1;
    const first = 1 - beta1 ** this.steps;
    const second = Math.sqrt(1 - beta2 ** this.steps);
    for (const [name, { data, grad }] of this.parameters) {
      const [m, v] = /** @type {[Float32Array, Float32Array]} */ (this.moments.get(name));
      for (let i = 0; i < data.length; i += 1) {
        const g = grad[i] * scale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        data[i] -= ((rate / first) * m[i]) / (Math.sqrt(v[i]) / second + epsilon);
      }
    }
    return loss;
  }
}

/** The rate of a step, counted from 1: it rises to its peak, then falls as half a cosine. */
export function rateOf(/** @type {number} */ step, /** @type {number} */ steps, /** @type {number} */ warmup, /** @type {number} */ peak) {
  if (step <= warmup) return (peak * step) / warmup;
  return (peak * (1 + Math.cos(Math.PI * Math.min(1, (step - warmup) / Math.max(1, steps - warmup))))) / 2;
}

/** The names and shapes of all parameters of a network of the paper, in the order of PyTorch. @returns {Map<string, number[]>} */
function shapesOf(/** @type {any} */ { d_model: D, heads: H, d_k: K, d_v: V, d_ff: F, encoder_layers, decoder_layers, source_vocabulary, target_vocabulary }) {
  /** @type {Map<string, number[]>} */ const found = new Map();
  const linear = (/** @type {string} */ path, /** @type {number} */ out, /** @type {number} */ wide) => found.set(`${path}.weight`, [out, wide]).set(`${path}.bias`, [out]);
  const norm = (/** @type {string} */ path) => found.set(`${path}.weight`, [D]).set(`${path}.bias`, [D]);
  const attention = (/** @type {string} */ path) => {
    linear(`${path}.w_q`, H * K, D);
    linear(`${path}.w_k`, H * K, D);
    linear(`${path}.w_v`, H * V, D);
    linear(`${path}.w_o`, D, H * V);
    norm(`${path}_norm.norm`);
  };
  for (const [half, layers, size] of /** @type {[string, number, number][]} */ ([["encoder", encoder_layers, source_vocabulary], ["decoder", decoder_layers, target_vocabulary]])) {
    found.set(`${half}.embedding.table.weight`, [size, D]);
    for (let n = 0; n < layers; n += 1) {
      const layer = `${half}.layers.${n}`;
      attention(`${layer}.self_attention`);
      if (half === "decoder") attention(`${layer}.cross_attention`);
      linear(`${layer}.feed_forward.w_1`, F, D);
      linear(`${layer}.feed_forward.w_2`, D, F);
      norm(`${layer}.feed_forward_norm.norm`);
    }
  }
  linear("output", target_vocabulary, D);
  return found;
}

/** Random numbers from 0 to 1 that a seed repeats (mulberry32). */
export function randomOf(/** @type {number} */ seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** Draw all parameters anew: Xavier for matrices, and a variance of 1 for the scaled embedding. @returns {Map<string, Tensor>} */
export function drawn(/** @type {any} */ config, /** @type {() => number} */ random) {
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return new Map([...shapesOf(config)].map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    const data = new Float32Array(size);
    const [out, wide = 0] = shape;
    const most = Math.sqrt(6 / (out + wide));
    if (name.endsWith("table.weight")) data.forEach((_, i) => { data[i] = normal() / Math.sqrt(config.d_model); });
    else if (name.endsWith("norm.weight")) data.fill(1);
    else if (wide) data.forEach((_, i) => { data[i] = most * (2 * random() - 1); });
    return [name, { shape, data }];
  }));
}
