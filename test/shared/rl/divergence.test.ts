import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  healthAtStart,
  isCollapse,
  judgeStep,
  rewardsOfMajority,
  type DivergenceLimits,
  type Verdict,
} from '../../../shared/rl/divergence.js';

const limits = { maxKl: 0.5, minRewardShare: 0.5, patience: 2 };

/** The verdict after each of these steps. */
function verdicts(
  steps: readonly (readonly [kl: number, reward: number])[],
  bounds: DivergenceLimits = limits,
): Verdict[] {
  let health = healthAtStart;
  return steps.map(([kl, reward]) => {
    const judged = judgeStep(health, { kl, reward }, bounds);
    health = judged.health;
    return judged.verdict;
  });
}

const states = (...parameters: Parameters<typeof verdicts>): string[] =>
  verdicts(...parameters).map(({ state }) => state);

describe('the majority reward', () => {
  const [low, middle, high] = [0.1, 0.5, 0.9].map((reward) => ({ rollouts: 10, reward }));

  it('the majority reward is the mean if there is one actor', () => {
    assert.deepEqual(rewardsOfMajority([middle!]), { upper: 0.5, lower: 0.5 });
  });

  it('the majority reward does not follow a minority, however many rollouts it has', () => {
    const many = { ...low!, rollouts: 10_000 };
    assert.deepEqual(rewardsOfMajority([middle!, many]), { upper: 0.5, lower: 0.1 });
    const { upper, lower } = rewardsOfMajority([many, high!, middle!]);
    assert(Math.abs(upper - 0.7) < 1e-9 && lower < 0.102, `${upper} ${lower}`);
  });

  it('the majority reward is compared with the best majority reward', () => {
    const bounds = { ...limits, patience: 1 };
    const { health } = judgeStep(
      healthAtStart,
      { kl: 0, reward: 1, lowerReward: 0.4 }, // one actor answered everything rightly
      bounds,
    );
    assert.equal(judgeStep(health, { kl: 0, reward: 0.3 }, bounds).verdict.state, 'healthy');
    assert.equal(judgeStep(health, { kl: 0, reward: 0.1 }, bounds).verdict.state, 'diverged');
  });
});

describe('training, judged with a patience of 2 steps', () => {
  it('training is healthy while KL and reward are in bounds', () => {
    const steps = [
      [0.1, 0.2],
      [0.5, 0.3],
    ] as const;
    assert.deepEqual(verdicts(steps), [{ state: 'healthy' }, { state: 'healthy' }]);
  });

  it('training is suspect at the first step above the KL bound, and diverged at the second in a row', () => {
    const steps = [
      [0.1, 0.3],
      [0.6, 0.3],
      [0.7, 0.3],
    ] as const;
    assert.deepEqual(states(steps), ['healthy', 'suspect', 'diverged']);
    const last = verdicts(steps).at(-1)!;
    assert(last.state === 'diverged');
    assert.match(last.reason, /is 0.7 nats per token, above 0.5/);
  });

  it('training is healthy again when the KL recovers', () => {
    const steps = [
      [0.6, 0.3],
      [0.1, 0.3],
      [0.6, 0.3],
    ] as const;
    assert.deepEqual(states(steps), ['suspect', 'healthy', 'suspect']);
  });

  it('training is diverged at once when the KL is not finite', () => {
    const [verdict] = verdicts([[NaN, 0.3]]);
    assert.deepEqual(verdict, {
      state: 'diverged',
      reason: "the policy's logprobs are not finite",
    });
  });

  it('training collapses when the reward stays below the share of its best average', () => {
    const steps = [0.4, 0.4, 0.2, 0.1, 0.1].map((reward) => [0, reward] as const);
    // Averages of two: 0.4, 0.3, 0.15, 0.1; the best is 0.4.
    assert.deepEqual(states(steps), ['healthy', 'healthy', 'healthy', 'suspect', 'diverged']);
    const last = verdicts(steps).at(-1)!;
    assert(last.state === 'diverged');
    assert.match(last.reason, /over 2 steps is 0.1, less than 0.5 of its best, 0.4/);
  });

  it('training diverges only on non-finite numbers when no bound is set', () => {
    const none = { maxKl: Infinity, minRewardShare: 0, patience: 1 };
    const steps = [
      [9, 0.5],
      [9, 0],
      [9, -0.5],
    ] as const;
    assert.deepEqual(states(steps, none), ['healthy', 'healthy', 'healthy']);
  });
});

describe('groups without variance', () => {
  const after = (...rewards: number[]) => {
    const steps = rewards.map((reward) => ({ kl: 0, reward }));
    return steps.reduce((health, step) => judgeStep(health, step, limits).health, healthAtStart);
  };

  it('groups without variance are a collapse when they earn less than the share of the best reward', () => {
    assert(isCollapse(after(0.2, 0.6, 0.6), 0.29, limits));
    assert(!isCollapse(after(0.2, 0.6, 0.6), 0.31, limits));
  });

  it('groups without variance are compared with the few earlier steps if there is no average yet', () => {
    assert(isCollapse(after(0.6), 0.1, limits));
  });

  it('groups without variance are not a collapse before the first step, nor when the check is off', () => {
    assert(!isCollapse(healthAtStart, 0, limits));
    for (const reward of [0, -1]) {
      assert(!isCollapse(after(0.6, 0.6), reward, { ...limits, minRewardShare: 0 }));
    }
  });
});
