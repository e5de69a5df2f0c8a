import pLimit from 'p-limit';
import {
  boundOfUndrawn,
  compareCanary,
  type LogprobBand,
  type TokenScores,
} from '../../shared/rl/canary.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { noLogprob, type SampledSequence } from '../../shared/tinker/types.js';
import type { Canary } from '../../shared/wire/canary.js';

/** The tokens of a canary whose logprobs are wanted; without the trainer's, which a sampler must not need. */
export type CanaryTexts = Pick<Canary, 'texts' | 'places' | 'temperature'>;

/**
 * A request for one text: its prompt ends before the first wanted token, and the tokens from there to the last wanted
 * one are forced, not drawn.
 */
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
  return shown(logprobs);
}

/** Draws of one token at each place, where only drawn tokens are shown: improbable ones may be missed. */
const draws = 64;
const requestsAtOnce = 8;
/** Answers to one prompt whose logprobs are compared with those that the sampler gives the same tokens in a prompt. */
const linkedAnswers = 4;

/**
 * Scores for a sampler that cannot be forced to take tokens. After the text before each place it samples answers of
 * one token: one answer if the sampler also shows the most probable tokens, else `draws` answers. A token that none of
 * them shows gets an upper bound.
 *
 * @param mostProbable how many tokens the sampler shows; 0: only drawn ones.
 * @param sample samples the answers of one request.
 */
export async function scoresByAnswers(
  { texts, places, temperature }: CanaryTexts,
  mostProbable: number,
  sample: (request: GroupRequest) => Promise<readonly Shown[]>,
): Promise<TokenScores> {
  const turn = pLimit(requestsAtOnce);
  const how = mostProbable > 0 ? { count: 1, mostProbable } : { count: draws };
  const scores = await Promise.all(
    places.map(([text, index], seed) =>
      turn(async () => {
        const prompt = texts[text]!.slice(0, index);
        const request = { prompt, ...how, temperature, maxTokens: 1, stopTokenIds: [], seed };
        return scoreOf(texts[text]![index]!, await sample(request));
      }),
    ),
  );
  return {
    logprobs: Float32Array.from(scores, ({ logprob }) => logprob),
    isBound: scores.map(({ isBound }) => isBound),
  };
}

/**
 * Scores by the logprobs that the sampler gives the texts as prompts. These show every token, however improbable. But
 * they prove something about sampling only if they agree with the logprobs of drawn tokens. So at one place of each
 * text tokens are drawn, and then scored as part of a prompt. If the two disagree, for instance because prompts are
 * scored at another temperature, or if the sampler shows no logprobs of prompts, {@link scoresByAnswers} is used
 * instead.
 *
 * @param canary with how far two honest computations may be apart.
 */
export async function scoresByPrompts(
  canary: CanaryTexts & { readonly band: LogprobBand },
  sample: (request: GroupRequest) => Promise<readonly Shown[]>,
): Promise<TokenScores> {
  const { texts, places, temperature, band } = canary;
  const turn = pLimit(requestsAtOnce);
  const ask = (prompt: Int32Array, how: Pick<GroupRequest, 'count' | 'seed' | 'scoresPrompt'>) =>
    turn(() => sample({ prompt, temperature, maxTokens: 1, stopTokenIds: [], ...how }));
  const scored = async (prompt: Int32Array) => {
    const [answer] = await ask(prompt, { count: 1, seed: 0, scoresPrompt: true });
    return answer?.promptLogprobs;
  };

  const used = texts.flatMap((tokens, text) => {
    const own = places.flatMap(([of, index]) => (of === text ? [index] : []));
    if (own.length === 0) return [];
    return [{ text, first: Math.min(...own), prompt: tokens.slice(0, Math.max(...own) + 1) }];
  });
  const [all, drawn] = await Promise.all([
    Promise.all(used.map(({ prompt }) => scored(prompt))),
    Promise.all(
      used.map(({ prompt, first }, seed) =>
        ask(prompt.slice(0, first), { count: linkedAnswers, seed }),
      ),
    ),
  ]);
  const logprobs = Float32Array.from(places, ([of, index]) => {
    return all[used.findIndex(({ text }) => text === of)]?.[index] ?? NaN;
  });
  const byDrawing = async (whyDrawn: string) => ({
    ...(await scoresByAnswers(canary, 0, sample)),
    whyDrawn,
  });
  if (!logprobs.every(Number.isFinite)) {
    return byDrawing('it does not show the logprobs of prompts');
  }

  const pairs = await Promise.all(
    used.flatMap(({ prompt, first }, i) => {
      const answers = new Map(drawn[i]!.map((each) => [each.tokens[0]!, each.logprobs[0]!]));
      return [...answers].map(async ([token, asAnswer]) => {
        if (token === prompt[first]) return [all[i]![first]!, asAnswer] as const;
        const text = Int32Array.of(...prompt.subarray(0, first), token);
        return [(await scored(text))?.[first] ?? NaN, asAnswer] as const;
      });
    }),
  );
  const asAnswers = Float32Array.from(pairs, ([, asAnswer]) => asAnswer);
  const asPrompts = Float32Array.from(pairs, ([asPrompt]) => asPrompt);
  if (!compareCanary(asAnswers, shown(asPrompts), band).isReproduced) {
    return byDrawing('it gives tokens of prompts other logprobs than tokens that it draws');
  }
  return shown(logprobs);
}

function shown(logprobs: Float32Array): TokenScores {
  return { logprobs, isBound: Array.from(logprobs, () => false) };
}

/** An answer of one token, with the most probable ones and the prompt's logprobs where they were asked for. */
type Shown = Pick<SampledSequence, 'tokens' | 'logprobs' | 'top' | 'promptLogprobs'>;

function scoreOf(token: number, answers: readonly Shown[]): { logprob: number; isBound: boolean } {
  const drawn = answers.find(({ tokens }) => tokens[0] === token)?.logprobs[0];
  if (drawn !== undefined) return { logprob: drawn, isBound: false };
  const [{ top } = {}] = answers;
  if (top === undefined) return { logprob: boundOfUndrawn(draws), isBound: true };
  const at = top.tokens.findIndex((shown, i) => shown === token && top.logprobs[i] !== noLogprob);
  if (at !== -1) return { logprob: top.logprobs[at]!, isBound: false };
  // vLLM shows the drawn token among the most probable ones, however improbable it is.
  const probable = top.logprobs.filter(
    (each, i) => each !== noLogprob && top.tokens[i] !== answers[0]!.tokens[0],
  );
  return { logprob: probable.length === 0 ? 0 : Math.min(...probable), isBound: true };
}
