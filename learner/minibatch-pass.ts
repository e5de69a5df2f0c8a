import { batchAdvantages } from '../shared/rl/advantages.js';
import { advantageScales } from '../shared/rl/normalization.js';
import type { TokenPairs } from '../shared/rl/off-policy.js';
import type { Datum, ForwardBackwardResult } from '../shared/tinker/types.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import type { ScoredGroup } from '../shared/wire/scored-group.js';
import { datumOf, firstPosition } from './datums.js';
import { handled } from './handled.js';

/** The calls of a training run that a minibatch needs. */
export interface MinibatchBackend {
  forwardBackward(
    data: readonly Datum[],
    loss: RunConfig['loss']['name'],
    config: Readonly<Record<string, number>>,
  ): Promise<ForwardBackwardResult>;
  forward: MinibatchBackend['forwardBackward'];
}

export interface MinibatchResult {
  readonly lossSum: number;
  readonly rollouts: readonly (TokenPairs & { readonly staleness: number })[];
}

type TrainingSettings = Pick<
  RunConfig,
  'advantage' | 'normalization' | 'numMinibatches' | 'loss' | 'sampling'
>;

/** A minibatch that the backend has in its queue. */
export interface SentMinibatch {
  readonly result: Promise<MinibatchResult>;
}

/**
 * Sends a minibatch to the backend, which adds its gradients to those of the step. Resolves once it
 * is in the backend's queue, so that what is called next runs behind it; the result comes later.
 *
 * Cost: one forward_backward; `dro` one forward more, which must be answered before.
 *
 * @param staleness of each group.
 */
export async function sendMinibatch(
  backend: MinibatchBackend,
  config: TrainingSettings,
  groups: readonly ScoredGroup[],
  staleness: readonly number[],
): Promise<SentMinibatch> {
  const { loss, sampling } = config;
  // The behavior logprobs are those of the distribution at this temperature, so ours must be too.
  const lossConfig = { ...loss.config, temperature: sampling.temperature };
  const rollouts = weighted(config, groups, staleness);

  const datums = (promptLogprobs?: readonly Float32Array[]): Datum[] =>
    rollouts.map(({ promptTokens, rollout, advantage }, i) =>
      datumOf(loss.name, promptTokens, rollout, advantage, promptLogprobs?.[i]),
    );
  const prompts =
    loss.name === 'dro' ? await backend.forward(datums(), loss.name, lossConfig) : undefined;
  const passed = backend.forwardBackward(datums(prompts?.logprobs), loss.name, lossConfig);

  const pair = ({ logprobs, metrics }: ForwardBackwardResult): MinibatchResult => ({
    lossSum: metrics['loss:sum'] ?? NaN,
    rollouts: rollouts.map(({ promptTokens, rollout, staleness }, i) => ({
      behavior: rollout.behaviorLogprobs,
      current: logprobs[i]!.subarray(firstPosition(promptTokens)),
      staleness,
    })),
  });
  return { result: handled(passed.then(pair)) };
}

function weighted(
  config: TrainingSettings,
  groups: readonly ScoredGroup[],
  staleness: readonly number[],
) {
  const { advantage, normalization, numMinibatches, sampling } = config;
  const advantages = batchAdvantages(
    advantage,
    groups.map(({ scores }) => scores.map(({ reward }) => reward)),
  );
  const scales = advantageScales(
    normalization,
    groups.map(({ group }) => group.rollouts.map(({ tokens }) => tokens.length)),
    { numMinibatches, maxTokens: sampling.maxTokens },
  );
  return groups.flatMap(({ group: { promptTokens, rollouts } }, g) =>
    rollouts.map((rollout, i) => ({
      promptTokens,
      rollout,
      advantage: advantages[g]![i]! * scales[g]![i]!,
      staleness: staleness[g]!,
    })),
  );
}
