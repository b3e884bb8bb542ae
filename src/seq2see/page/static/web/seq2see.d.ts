/** A trained model that answers texts in a browser or in Node: no server, no dependency, nothing leaves the machine. */

export interface Options {
  /** The width of the beam search; 1 is greedy. The model’s own if it is left out. */
  beam?: number;
  /** How many answers; the others are the alternatives. A beam is at least as wide. */
  nBest?: number;
  /** Of dates that people write: whether 03/04/2020 begins with the day or the month. */
  order?: "day" | "month";
  /** Whether to say where the model looked at each step. */
  attention?: boolean;
}

export interface Token {
  token: string;
  /** The probability that the model gave it. */
  probability: number;
}

export interface Alternative {
  output: string;
  logProbability: number;
  /** What answers are ranked by: the log-probability over a power of the length. */
  score: number;
}

export interface Attention {
  /** The tokens that the model read, with the characters of the text that each stands for. */
  source: { token: string; span: [number, number] }[];
  /** The tokens that it wrote. */
  target: string[];
  /** How much of each source token went into each target token: weights[layer][head][target][source]. A row adds up to 1. */
  weights: number[][][][];
}

export interface Answer {
  input: string;
  /** The answer; null if the text was refused. */
  output: string | null;
  /** Why the text was refused. */
  error: string | null;
  /** The calibrated probability that the answer is right; null where nothing is known of it. */
  confidence: number | null;
  /** How the text was read, or why it is unlike those that the model has learned from. */
  remark: string | null;
  logProbability: number | null;
  /** Whether the answer came to its end, and was not cut at the most tokens that it may have. */
  finished: boolean;
  tokens: Token[];
  alternatives: Alternative[];
  /** Of dates that people write: the dates that the text may stand for. Two if the order of day and month is open. */
  readings?: string[];
  attention?: Attention;
}

/** What is known of a model. */
export interface About {
  name: string;
  task: string;
  parameters: number;
  examples: string[];
  /** What a confidence says; null if there is none. */
  confidence: string | null;
  /** Whether it translates whole texts, sentence by sentence. */
  sentences: boolean;
}

export interface Model {
  about: About;
  /** Answer a text. A text that the model cannot take is refused in `error`; nothing is thrown. */
  answer(text: string, options?: Options): Promise<Answer>;
  /** Translate a text sentence by sentence; what stands between them stays. Of a model of sentences only. */
  translate(text: string, options?: Options): Promise<string>;
  /** End the worker. */
  close(): void;
}

/**
 * Load a model.
 * @param url the folder that `seq2see export --to web` wrote; the folder of this module if it is left out
 * @param options `worker: false` answers in the thread of the caller, which then waits
 */
export function load(url?: string | URL, options?: { worker?: boolean }): Promise<Model>;
