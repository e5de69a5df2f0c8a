import pLimit from 'p-limit';
import { boundOfUndrawn, type TokenScores } from '../../shared/rl/canary.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import type { Canary } from '../../shared/wire/canary.js';

/** The tokens of a canary whose logprobs are wanted; without the trainer's, which a sampler must not need. */
export type CanaryTexts = Pick<Canary, 'texts' | 'places' | 'temperature'>;

/** A request that reads a text up to its first wanted token, and is then given its own tokens instead of drawing. */
interface ForcedText {
  readonly request: GroupRequest & { readonly forced: Int32Array };
  readonly wanted: readonly { readonly place: number; readonly at: number }[]; // index in `forced`
}

/** Scores by teacher forcing: each text that has places is one request, in which every token is forced. */
export function forcedTexts({ texts, places, temperature }: CanaryTexts): ForcedText[] {
  return texts.flatMap((tokens, text) => {
    const own = places.flatMap(([of, index], place) => (of === text ? [{ place, index }] : []));
    if (own.length === 0) return [];
    const first = Math.min(...own.map(({ index }) => index));
    const end = Math.max(...own.map(({ index }) => index)) + 1;
    const forced = tokens.slice(first, end);
    const request = {
      prompt: tokens.slice(0, first),
      ...{ count: 1, temperature, maxTokens: forced.length, stopTokenIds: [], seed: 0, forced },
    };
    return [{ request, wanted: own.map(({ place, index }) => ({ place, at: index - first })) }];
  });
}

/** The scores of the places, from the logprobs of `forcedTexts`' requests in order. */
export function scoresOfForced(
  texts: readonly Pick<ForcedText, 'wanted'>[],
  rollouts: readonly Pick<SampledRollout, 'behaviorLogprobs'>[],
): TokenScores {
  const found = texts.flatMap(({ wanted }, i) =>
    wanted.map(({ place, at }) => [place, rollouts[i]?.behaviorLogprobs[at] ?? NaN] as const),
  );
  const logprobs = new Float32Array(found.length);
  for (const [place, logprob] of found) logprobs[place] = logprob;
  return { logprobs, isBound: Array.from(logprobs, () => false) };
}

/** Draws of one token at each place: improbable tokens may be missed. */
const draws = 64;
const requestsAtOnce = 8;

/**
 * Scores by what a sampler that cannot be given tokens says of those that it draws: `draws` answers of one token after
 * each place's text. A token that none of them is gets an upper bound.
 *
 * @param sample samples the answers of one request.
 */
export async function scoresByDraws(
  { texts, places, temperature }: CanaryTexts,
  sample: (
    request: GroupRequest,
  ) => Promise<readonly { readonly tokens: Int32Array; readonly logprobs: Float32Array }[]>,
): Promise<TokenScores> {
  const turn = pLimit(requestsAtOnce);
  const scores = await Promise.all(
    places.map(([text, index], seed) =>
      turn(async () => {
        const prompt = texts[text]!.slice(0, index);
        const request = {
          ...{ prompt, count: draws, temperature, maxTokens: 1, stopTokenIds: [], seed },
        };
        const answers = await sample(request);
        const token = texts[text]![index];
        return answers.find(({ tokens }) => tokens[0] === token)?.logprobs[0];
      }),
    ),
  );
  return {
    logprobs: Float32Array.from(scores, (logprob) => logprob ?? boundOfUndrawn(draws)),
    isBound: scores.map((logprob) => logprob === undefined),
  };
}
