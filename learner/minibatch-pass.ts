import { correctTokens, needsProximal, type CorrectedTokens } from '../shared/rl/corrections.js';
import type { TokenPairs } from '../shared/rl/off-policy.js';
import type { Datum, ForwardBackwardResult } from '../shared/tinker/types.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import type { ScoredGroup } from '../shared/wire/scored-group.js';
import { datumOf, firstPosition, unweightedDatum } from './datums.js';
import { handled } from './handled.js';
import {
  tokenAdvantages,
  type AdvantageSettings,
  type TokenAdvantages,
} from './token-advantages.js';

/** The calls of a training run that a minibatch needs. */
export interface MinibatchBackend {
  forwardBackward(
    data: readonly Datum[],
    loss: RunConfig['loss']['name'],
    config: Readonly<Record<string, number>>,
  ): Promise<ForwardBackwardResult>;
  forward: MinibatchBackend['forwardBackward'];
}

export interface MinibatchBackends {
  readonly run: MinibatchBackend;
  /** A run that is never trained, so that it is the base model; there if there is a KL penalty. */
  readonly base: Pick<MinibatchBackend, 'forward'> | undefined;
}

export interface MinibatchResult {
  readonly lossSum: number;
  readonly rollouts: readonly (TokenPairs & { readonly staleness: number })[];
  readonly corrected: readonly Pick<CorrectedTokens, 'weights' | 'sides'>[] | undefined;
  readonly terms: Omit<TokenAdvantages, 'advantages'>;
}

export type PassSettings = AdvantageSettings & Pick<RunConfig, 'loss' | 'correction'>;

/** A minibatch that the backend has in its queue. */
export interface SentMinibatch {
  readonly result: Promise<MinibatchResult>;
}

/**
 * Sends a minibatch to the backend, which adds its gradients to those of the step. Resolves once it
 * is in the backend's queue, so that what is called next runs behind it; the result comes later.
 *
 * Cost: one `forward_backward`. `dro`, a mask or importance weights need one `forward` more, all of
 * them the same one; a KL penalty needs one `forward` of the base. Those are answered before.
 *
 * @param staleness of each group.
 */
export async function sendMinibatch(
  { run, base }: MinibatchBackends,
  config: PassSettings,
  groups: readonly ScoredGroup[],
  staleness: readonly number[],
): Promise<SentMinibatch> {
  const { loss, correction, sampling } = config;
  // The behavior logprobs are those of the distribution at this temperature, so ours must be too.
  const { temperature } = sampling;
  const rollouts = groups.flatMap(({ group: { promptTokens, rollouts } }, g) =>
    rollouts.map((rollout) => ({ ...rollout, promptTokens, staleness: staleness[g]! })),
  );
  const scored = async (
    model: Pick<MinibatchBackend, 'forward'>,
  ): Promise<readonly Float32Array[]> => {
    const data = rollouts.map(({ promptTokens, tokens }) => unweightedDatum(promptTokens, tokens));
    return (await model.forward(data, 'cross_entropy', { temperature })).logprobs;
  };
  const completion = (logprobs: Float32Array, i: number): Float32Array =>
    logprobs.subarray(firstPosition(rollouts[i]!.promptTokens));

  const [current, ofBase] = await Promise.all([
    loss.name === 'dro' || needsProximal(correction) ? scored(run) : undefined,
    base && scored(base),
  ]);
  const { advantages, ...terms } = tokenAdvantages(config, groups, ofBase?.map(completion));
  const corrected = current?.map((logprobs, i) =>
    correctTokens(correction, {
      behavior: rollouts[i]!.behaviorLogprobs,
      proximal: completion(logprobs, i),
      advantages: advantages[i]!,
    }),
  );
  const data = rollouts.map(({ promptTokens, tokens, behaviorLogprobs }, i) => {
    const inputs = corrected?.[i] ?? { logprobs: behaviorLogprobs, advantages: advantages[i]! };
    return datumOf(loss.name, promptTokens, tokens, inputs, current?.[i]);
  });
  const passed = run.forwardBackward(data, loss.name, { ...loss.config, temperature });

  const pair = ({ logprobs, metrics }: ForwardBackwardResult): MinibatchResult => ({
    lossSum: metrics['loss:sum'] ?? NaN,
    rollouts: rollouts.map(({ behaviorLogprobs, staleness }, i) => ({
      behavior: behaviorLogprobs,
      current: completion(logprobs[i]!, i),
      staleness,
    })),
    corrected: corrected?.map(({ weights, sides }) => ({ weights, sides })),
    terms,
  });
  return { result: handled(passed.then(pair)) };
}
