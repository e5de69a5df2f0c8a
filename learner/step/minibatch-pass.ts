import { correctTokens, needsProximal, type CorrectedTokens } from '../../shared/rl/corrections.js';
import { allowedTokens, mayTrainOn, type StalenessBound } from '../../shared/rl/staleness-bound.js';
import { lossAndGradient, losses } from '../../shared/rl/losses.js';
import type { VersionedPairs } from '../../shared/rl/off-policy.js';
import type { Datum } from '../../shared/rl/datum.js';
import type { ForwardBackwardResult } from '../../shared/tinker/types.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Rollout } from '../../shared/wire/rollout-group.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import { datumOf, firstPosition, type TokenInputs, unweightedDatum } from './datums.js';
import { markHandled } from '../../shared/base/task-scope.js';
import {
  tokenAdvantages,
  type AdvantageSettings,
  type TokenAdvantages,
} from './token-advantages.js';

/** The calls of a training run that a minibatch uses. */
export interface MinibatchBackend {
  forwardBackward(
    data: readonly Datum[],
    loss: RunConfig['loss']['name'],
    config: Readonly<Record<string, number>>,
  ): Promise<ForwardBackwardResult>;
  forward: MinibatchBackend['forwardBackward'];
}

interface MinibatchBackends {
  readonly run: MinibatchBackend;
  /** A run that is never trained, so that it is the base model; defined only with a KL penalty. */
  readonly base: Pick<MinibatchBackend, 'forward'> | undefined;
}

export type PassSettings = AdvantageSettings & Pick<RunConfig, 'loss' | 'correction'>;

/** A minibatch that is ready to send. */
interface PreparedMinibatch {
  readonly data: readonly Datum[]; // one per rollout
  readonly rollouts: readonly PassedRollout[];
  /**
   * One per rollout, of the tokens within the bound; `sides` is -1 for a token masked below the bounds, 1 above, 0 for
   * one that is kept.
   */
  readonly corrected: readonly Pick<CorrectedTokens, 'weights' | 'sides'>[] | undefined;
  readonly advantages: readonly Float64Array[]; // [B][T] before any correction
  readonly bound: StalenessBound;
  readonly terms: Omit<TokenAdvantages, 'advantages'>;
}

/** How strongly a rollout pulls on the weights: the sum over its tokens of |d loss / d logprob|. */
interface Pull {
  readonly actual: number;
  readonly onPolicy: number; // as if its claims were the logprobs of the policy in training
}

export interface MinibatchResult extends Pick<PreparedMinibatch, 'corrected' | 'terms'> {
  readonly lossSum: number;
  readonly rollouts: readonly VersionedPairs[];
  /** [B] */
  readonly pulls: () => readonly Pull[];
}

type PassedRollout = Rollout & { readonly promptTokens: Int32Array };

/**
 * Whether the minibatches of a batch must be prepared together before the first is sent: because their
 * advantages are compared, or because later ones are corrected against the policy at the start of the
 * batch. Otherwise each is prepared and sent as soon as it is full.
 */
export function needsWholeBatch({
  advantage,
  correction,
  numSubsteps,
}: Pick<RunConfig, 'advantage' | 'correction' | 'numSubsteps'>): boolean {
  return advantage === 'batch_std' || (numSubsteps > 1 && needsProximal(correction));
}

/**
 * Computes the advantages, corrections and datums of minibatches. It masks tokens beyond the bound: their advantage
 * becomes 0. Where the loss would still pull on such a token, the current logprob also replaces its behavior logprob.
 *
 * Cost: one `forward` of all minibatches if the proximal logprobs are needed, by a loss that counts every position
 * (`dro`), a mask or importance weights; and one `forward` of the base for a KL penalty. Otherwise nothing.
 *
 * @param minibatches the groups of each.
 * @param bound of the step that trains on them.
 */
export async function prepareMinibatches(
  { run, base }: MinibatchBackends,
  config: PassSettings,
  minibatches: readonly (readonly ScoredGroup[])[],
  bound: StalenessBound,
): Promise<PreparedMinibatch[]> {
  const { loss, correction, sampling } = config;
  const rollouts = minibatches.flatMap(rolloutsOf);
  const fresh = rollouts.map(({ versions }) => allowedTokens(versions, bound));
  const logprobsUnder = async (model: Pick<MinibatchBackend, 'forward'>) => {
    const data = rollouts.map(({ promptTokens, tokens }) => unweightedDatum(promptTokens, tokens));
    const { temperature } = sampling;
    return (await model.forward(data, 'cross_entropy', { temperature })).logprobs;
  };
  const completion = (logprobs: Float32Array, i: number) => completionOf(rollouts[i]!, logprobs);

  const [current, ofBase] = await Promise.all([
    losses[loss.name].scaledBy === undefined || needsProximal(correction)
      ? logprobsUnder(run)
      : undefined,
    base && logprobsUnder(base),
  ]);
  const proximal = current?.map((logprobs) => logprobs.map(sendable)); // of whole texts
  const { advantages, ...terms } = tokenAdvantages(
    config,
    minibatches,
    ofBase?.map(completion),
    fresh,
  );
  const corrected = proximal?.map((logprobs, i) =>
    correctTokens(correction, {
      behavior: rollouts[i]!.behaviorLogprobs,
      proximal: completion(logprobs, i),
      advantages: advantages[i]!,
    }),
  );
  const data = rollouts.map(({ promptTokens, tokens, behaviorLogprobs }, i) => {
    const inputs = corrected?.[i] ?? { logprobs: behaviorLogprobs, advantages: advantages[i]! };
    const whole = proximal?.[i];
    const masked = fresh[i] && whole && anchored(inputs, fresh[i], completion(whole, i));
    return datumOf(loss.name, promptTokens, tokens, masked ?? inputs, whole);
  });

  const ofTrained = corrected?.map(({ weights, sides }, i) => {
    const isTrained = (_: number, t: number) => fresh[i]?.[t] !== 0;
    return { weights: weights.filter(isTrained), sides: sides.filter(isTrained) };
  });

  let end = 0;
  return minibatches.map((minibatch) => {
    const start = end;
    end += rolloutsOf(minibatch).length;
    return {
      data: data.slice(start, end),
      rollouts: rollouts.slice(start, end),
      corrected: ofTrained?.slice(start, end),
      advantages: advantages.slice(start, end),
      terms,
      bound,
    };
  });
}

/**
 * Gives each token that must not be trained on the current logprob in place of its own. With that and advantage 0, no
 * loss has a gradient at the token.
 */
function anchored(
  { logprobs, advantages }: TokenInputs,
  fresh: Uint8Array,
  current: ArrayLike<number>,
): TokenInputs {
  return {
    advantages,
    logprobs: Float64Array.from(fresh, (isTrained, t) =>
      isTrained === 1 ? logprobs[t]! : current[t]!,
    ),
  };
}

/**
 * Checks the bound once more on the data about to be sent, independently of the code that masks.
 *
 * @throws {Error} if a token beyond the bound has an advantage.
 */
function requireBound({ data, rollouts, bound }: PreparedMinibatch): void {
  rollouts.forEach(({ versions, promptTokens }, i) => {
    const { weights, advantages = weights } = data[i]!.inputs;
    let t = firstPosition(promptTokens);
    for (const [version, tokens] of versions) {
      const end = t + tokens;
      if (
        !mayTrainOn(version, bound) &&
        advantages!.subarray(t, end).some((value) => value !== 0)
      ) {
        throw new Error(
          `a token of version ${version} would be trained on by version ${bound.version}, ` +
            `but --max-steps-off-policy is ${bound.maxStepsOffPolicy}`,
        );
      }
      t = end;
    }
  });
}

/**
 * Sends a minibatch to the backend, which adds its gradients to those of the next optimizer step. The
 * call is in the backend's queue when this returns, so later calls run after it.
 *
 * Cost: one `forward_backward`.
 */
export function sendMinibatch(
  run: Pick<MinibatchBackend, 'forwardBackward'>,
  { loss, sampling }: Pick<PassSettings, 'loss' | 'sampling'>,
  prepared: PreparedMinibatch,
): Promise<MinibatchResult> {
  requireBound(prepared);
  const { data, rollouts, corrected, advantages, terms } = prepared;
  // The behavior logprobs are of the distribution at this temperature, so ours must be too.
  const settings = { ...loss.config, temperature: sampling.temperature };
  const passed = run.forwardBackward(data, loss.name, settings);
  const pair = ({ logprobs, metrics }: ForwardBackwardResult): MinibatchResult => ({
    lossSum: metrics['loss:sum'] ?? NaN,
    rollouts: rollouts.map((rollout, i) => ({
      behavior: rollout.behaviorLogprobs,
      current: completionOf(rollout, logprobs[i]!),
      versions: rollout.versions,
    })),
    corrected,
    terms,
    pulls: () =>
      rollouts.map((rollout, i) => {
        const inputs = Object.fromEntries(
          Object.entries(data[i]!.inputs).map(([key, values]) => [
            key,
            completionOf(rollout, values),
          ]),
        );
        const current = completionOf(rollout, logprobs[i]!);
        const { gradient } = lossAndGradient(loss.name, current, inputs, loss.config);
        return { actual: absoluteSum(gradient), onPolicy: absoluteSum(advantages[i]!) };
      }),
  });
  return markHandled(passed.then(pair));
}

function absoluteSum(values: Float64Array): number {
  return values.reduce((sum, value) => sum + Math.abs(value), 0);
}

function rolloutsOf(groups: readonly ScoredGroup[]): PassedRollout[] {
  return groups.flatMap(({ group: { promptTokens, rollouts } }) =>
    rollouts.map((rollout) => ({ ...rollout, promptTokens })),
  );
}

/** Replaces logprobs of broken weights, which cannot be sent; the pass reports broken weights anyway. */
function sendable(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : 0;
}

function completionOf({ promptTokens }: PassedRollout, logprobs: Float32Array): Float32Array {
  return logprobs.subarray(firstPosition(promptTokens));
}
