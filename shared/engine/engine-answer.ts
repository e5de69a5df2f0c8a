import { z } from 'zod';
import { PermanentError } from '../base/errors.js';
import type { GroupRequest } from '../model/rollout-draft.js';
import { noLogprob, type SampledSequence, type TopTokens } from '../tinker/types.js';
import { NotServed } from './adapter-server.js';
import { EngineDown, type EngineRefusal } from './engine-http.js';

/** A field that servers send as null where they have no value. */
export function maybe<Schema extends z.ZodType>(schema: Schema) {
  return schema.nullish().transform((value) => value ?? undefined);
}

/** The answer of `/v1/models`: the base model and the adapters. */
export const Models = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      parent: maybe(z.string()), // the base model's name, of an adapter
      max_model_len: maybe(z.int().positive()),
    }),
  ),
});

/** The names of the adapters among a server's models. */
export function adapterNames(models: z.output<typeof Models>['data']): string[] {
  return models.filter(({ parent }) => parent !== undefined).map(({ id }) => id);
}

/** Statuses by which a server says that it cannot answer this request: another one may do better. */
const faultsOfTheRequest: readonly number[] = [400, 413, 422];

/** A refusal of a request to sample as the error that its ticket deserves. */
export function refusalError(refusal: EngineRefusal): Error {
  const { status, message } = refusal;
  if (faultsOfTheRequest.includes(status)) return new PermanentError(message, { cause: refusal });
  if (status === 408 || status === 429) return new NotServed(refusal, { isBusy: true });
  // It is no answer of an engine but of something before it, such as a proxy while the engine is restarted.
  return new EngineDown(message, { cause: refusal });
}

/** What an engine drew for one rollout. */
interface Drawn {
  readonly tokens: readonly number[]; // [T]
  readonly logprobs: readonly number[]; // [T]
  readonly shown: readonly (readonly ShownToken[])[]; // [T][≥ k], the most probable first
  readonly reason: string | null | undefined; // why it ended
}

interface ShownToken {
  readonly token: number;
  readonly logprob: number;
}

/** Rounding may exceed 0 by this. */
const logprobNoise = 1e-4;

/**
 * A sequence of an answer, checked.
 *
 * @param mostProbable how many tokens of each position were to be shown.
 * @throws {EngineDown} if it has no tokens, too many, not one logprob each, did not end by itself, or shows no most
 *   probable tokens that were asked for: a canary would then be proven by nothing.
 */
export function sequenceOf(
  { tokens, logprobs, shown, reason }: Drawn,
  { maxTokens, mostProbable = 0 }: Pick<GroupRequest, 'maxTokens' | 'mostProbable'>,
  url: string,
): SampledSequence {
  if (reason !== 'stop' && reason !== 'length') {
    throw new EngineDown(`${url} ended an answer by ${String(reason)}, not by itself`);
  }
  if (tokens.length === 0 || tokens.length > maxTokens || tokens.length !== logprobs.length) {
    throw new EngineDown(
      `${url} answered ${tokens.length} tokens with ${logprobs.length} logprobs, at most ${maxTokens} were asked for`,
    );
  }
  const bad = logprobs.findIndex((logprob) => !(logprob > markOfNone && logprob <= logprobNoise));
  if (bad !== -1) {
    throw new EngineDown(
      `${url} answered the logprob ${logprobs[bad]} for token ${bad} of an answer`,
    );
  }
  if (mostProbable > 0 && tokens.some((_, i) => (shown[i] ?? []).length === 0)) {
    throw new EngineDown(
      `${url} answered without the ${mostProbable} most probable tokens of each position`,
    );
  }
  return {
    tokens: Int32Array.from(tokens),
    logprobs: Float32Array.from(logprobs, (logprob) => Math.min(0, logprob)),
    stopReason: reason,
    ...(mostProbable > 0 && { top: topTokens(shown, mostProbable) }),
  };
}

/** The k most probable tokens of each position; token 0 with `noLogprob` where the model has fewer. */
function topTokens(rows: Drawn['shown'], k: number): TopTokens {
  const tokens = new Int32Array(rows.length * k);
  const logprobs = new Float32Array(rows.length * k).fill(noLogprob);
  rows.forEach((row, position) => {
    row.slice(0, k).forEach(({ token, logprob }, i) => {
      tokens[position * k + i] = token;
      logprobs[position * k + i] = logprob;
    });
  });
  return { k, tokens, logprobs };
}

/** vLLM's mark for a token without a logprob. */
const markOfNone = -9_999;

/**
 * Whether logprobs asked for at a temperature are those of temperature 1: a temperature T divides the difference of
 * any two logprobs by T.
 *
 * @param plain logprobs of some tokens at temperature 1, by token.
 * @param heated those of the same tokens, asked for at the temperature.
 * @returns undefined if no two of the shared tokens differ enough to decide.
 */
export function ignoresTemperature(
  plain: ReadonlyMap<number, number>,
  heated: ReadonlyMap<number, number>,
  temperature: number,
): boolean | undefined {
  const shared = [...plain.keys()].filter((token) => heated.has(token));
  shared.sort((a, b) => plain.get(b)! - plain.get(a)!);
  const [first, last] = [shared[0], shared.at(-1)];
  if (first === undefined || last === undefined) return undefined;
  const gap = plain.get(first)! - plain.get(last)!;
  const heatedGap = heated.get(first)! - heated.get(last)!;
  if (Math.abs(gap - gap / temperature) < 1e-3) return undefined;
  return Math.abs(heatedGap - gap) < Math.abs(heatedGap - gap / temperature);
}
