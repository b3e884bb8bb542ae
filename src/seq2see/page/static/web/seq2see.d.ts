/** Runs a trained model in a browser or in Node, without a server and without dependencies. No text leaves the machine. */

export interface Options {
  /** The width of the beam search; 1 means greedy search. By default the model’s own width. */
  beam?: number;
  /** The number of answers: the best one and its alternatives. The beam is at least as wide. */
  nBest?: number;
  /** For the human-dates model: whether 03/04/2020 begins with the day or the month. */
  order?: "day" | "month";
  /** Whether to return the attention of each step. */
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
  /** The score that ranks the answers: the log-probability divided by a power of the length. */
  score: number;
}

export interface Attention {
  /** The tokens that the model read, each with the range of characters that it covers. */
  source: { token: string; span: [number, number] }[];
  /** The tokens that it wrote. */
  target: string[];
  /** The attention of each target token to each source token: weights[layer][head][target][source]. Each row adds up to 1. */
  weights: number[][][][];
}

export interface Answer {
  input: string;
  /** The answer; null if the text was refused. */
  output: string | null;
  /** The reason why the text was refused; null if it was not. */
  error: string | null;
  /** The calibrated probability that the answer is right; null if it is not known. */
  confidence: number | null;
  /** How the text was read, and how it differs from the texts of the training; null if there is nothing to say. */
  remark: string | null;
  logProbability: number | null;
  /** Whether the answer is complete; false if it was cut off at the greatest length. */
  finished: boolean;
  tokens: Token[];
  alternatives: Alternative[];
  /** For the human-dates model: the dates that the text may mean; two if the order of day and month is ambiguous. */
  readings?: string[];
  attention?: Attention;
}

/** A description of a model. */
export interface About {
  name: string;
  task: string;
  parameters: number;
  examples: string[];
  /** An explanation of what the confidence means; null if the model has none. */
  confidence: string | null;
  /** Whether the model translates whole texts, sentence by sentence. */
  sentences: boolean;
}

export interface Model {
  about: About;
  /** Answer a text. If the model cannot take the text, `error` says why; nothing is thrown. */
  answer(text: string, options?: Options): Promise<Answer>;
  /** Translate a text sentence by sentence and keep the white space between them. Only a model with `about.sentences` can do this. */
  translate(text: string, options?: Options): Promise<string>;
  /** End the worker. */
  close(): void;
}

/**
 * Load a model.
 * @param url the folder that `seq2see export --to web` wrote; by default the folder of this module
 * @param options with `worker: false` the model runs in the calling thread and blocks it
 */
export function load(url?: string | URL, options?: { worker?: boolean }): Promise<Model>;
