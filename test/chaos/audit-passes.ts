import { sum } from '../../shared/base/statistics.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { JudgedGroup } from './judgement.js';
import type { Recorded } from './witness.js';

export type TrainingSettings = Pick<
  RunConfig,
  'groupSize' | 'numMinibatches' | 'advantage' | 'normalization' | 'sampling' | 'loss' | 'adam'
>;

/**
 * Compares the backend requests with the rewards of the groups: the advantage of each token is computed
 * again from the task's rewards, by independent formulas. The settings are those of
 * this suite: no extra terms, no correction besides the loss, a constant learning rate.
 *
 * @param judged the groups that actors delivered, by key.
 */
export function auditPasses(
  operations: readonly Recorded[],
  judged: ReadonlyMap<string, JudgedGroup>,
  settings: TrainingSettings,
): string[] {
  const problems: string[] = [];
  for (const { model, seq, pass, groups = [], adam } of operations) {
    const complain = (what: string) => problems.push(`operation ${seq} of ${model} ${what}`);
    if (adam !== undefined && !sameNumbers(adam, settings.adam)) {
      complain(`is an optimizer step with ${shown(adam)}, not ${shown(settings.adam)}`);
    }
    if (pass === undefined) continue;
    const { temperature } = settings.sampling;
    // The client leaves out a temperature of 1.
    const config = { ...settings.loss.config, ...(temperature !== 1 && { temperature }) };
    if (pass.loss !== settings.loss.name || !sameNumbers(pass.config, config)) {
      complain(
        `has the loss ${pass.loss} with ${shown(pass.config)}, not ${settings.loss.name} with ${shown(config)}`,
      );
    }
    const found = groups.map((key) => judged.get(key));
    if (found.some((group) => group === undefined)) {
      complain('trained on a group that no actor delivered');
      continue;
    }
    const known = found as JudgedGroup[];
    const expected = expectedAdvantages(known, settings);
    pass.data.forEach(({ inputs, tokens }, i) => {
      const { promptLength, order, lengths } = known[Math.floor(i / settings.groupSize)]!;
      const start = promptLength - 1;
      const length = lengths[i % settings.groupSize]!;
      if (tokens.length !== start + length) {
        complain(`has ${tokens.length} positions for rollout ${i}, not ${start + length}`);
      }
      const found = inputs.advantages ?? new Float32Array();
      const wrong = found.findIndex((value, t) => !near(value, t < start ? 0 : expected[i]!));
      if (found.length === tokens.length && wrong === -1) return;
      complain(
        `gives rollout ${i % settings.groupSize} of ticket ${order} the advantage ${found[wrong] ?? 'none'} at position ${wrong}, not ${wrong < start ? 0 : expected[i]!}`,
      );
    });
  }
  return problems;
}

/** [rollouts of the minibatch] the advantage of each of their tokens. */
export function expectedAdvantages(
  minibatch: readonly Pick<JudgedGroup, 'rewards' | 'lengths'>[],
  { advantage, normalization, numMinibatches, sampling }: Omit<TrainingSettings, 'loss' | 'adam'>,
): number[] {
  const allLengths = minibatch.flatMap(({ lengths }) => lengths);
  return minibatch.flatMap(({ rewards, lengths }) => {
    const all = sum(rewards);
    const mean = all / rewards.length;
    const variance = sum(rewards.map((reward) => (reward - mean) ** 2)) / rewards.length;
    return rewards.map((reward, i) => {
      const weights = {
        none: 1,
        token: sum(allLengths) * numMinibatches,
        sequence: lengths[i]! * allLengths.length * numMinibatches,
        group: sum(lengths) * minibatch.length * numMinibatches,
        constant: sampling.maxTokens * allLengths.length * numMinibatches,
      };
      const compared = {
        mean_centred: reward - mean,
        mean_std: (reward - mean) / (Math.sqrt(variance) + 1e-6),
        leave_one_out: reward - (all - reward) / (rewards.length - 1),
        maxrl: mean > 0 ? (reward - mean) / mean : 0, // rewards are 0 or more
        reward,
        batch_std: NaN, // compares whole batches; no round uses it
      };
      return compared[advantage] / weights[normalization];
    });
  });
}

/** Equal within float32 precision. */
function near(a: number, b: number): boolean {
  return Math.abs(a - b) <= 1e-6 * Math.max(1e-3, Math.abs(b));
}

function sameNumbers(a: object, b: object): boolean {
  const ours = Object.entries(a) as [string, number][];
  const theirs = new Map(Object.entries(b) as [string, number][]);
  return (
    ours.length === theirs.size &&
    ours.every(([name, value]) => near(value, theirs.get(name) ?? NaN))
  );
}

function shown(values: object): string {
  return JSON.stringify(values);
}
