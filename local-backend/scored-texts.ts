import type { Adapter } from '../shared/model/lora.js';
import type { Scorer } from '../shared/model/scorer.js';
import type { TopTokens } from '../shared/tinker/types.js';
import type { AdapterFile } from './adapter-files.js';

/** The tokens of a text [T] to score: those from the index `from` on, which is above 0. */
interface ScoredPart {
  readonly tokens: Int32Array; // [T]
  readonly from: number;
}

/** Of the n tokens of a {@link ScoredPart}. */
export interface Scores {
  readonly logprobs: Float32Array; // [n]
  readonly top: TopTokens; // of n positions
}

/** Texts to score in one batch. */
export interface ScoringJob {
  readonly adapter: AdapterFile | undefined; // undefined: the base model
  readonly texts: readonly ScoredPart[];
  readonly k: number; // most probable tokens of each place; 0: none
  readonly temperature: number;
}

/** The scores of each text of a job. */
export async function scoreTexts(
  scorer: Scorer,
  adapter: Adapter | undefined,
  { texts, k, temperature }: ScoringJob,
): Promise<Scores[]> {
  // A text of which nothing is to be scored, such as one token, has no input tokens.
  const known = texts.filter(({ tokens, from }) => from < tokens.length);
  const inputs = known.map(({ tokens }) => tokens.slice(0, -1));
  const targets = known.map(({ tokens }) => tokens.slice(1));
  const scores =
    k === 0
      ? (await scorer.logprobs(inputs, targets, adapter, temperature)).map((logprobs) => ({
          logprobs,
          top: { tokens: new Int32Array(), logprobs: new Float32Array() },
        }))
      : await scorer.scores(inputs, targets, k, adapter, temperature);
  const found = new Map(known.map((text, i) => [text, scores[i]!]));
  return texts.map((text) => {
    const { logprobs, top } = found.get(text) ?? nothing;
    const first = text.from - 1;
    return {
      logprobs: logprobs.slice(first),
      top: { k, tokens: top.tokens.slice(first * k), logprobs: top.logprobs.slice(first * k) },
    };
  });
}

const nothing = {
  logprobs: new Float32Array(),
  top: { tokens: new Int32Array(), logprobs: new Float32Array() },
};
