import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DivergenceWatch } from '../../../learner/stop/divergence-watch.js';
import type { StepEvent } from '../../../learner/report/history.js';

const limits = { maxKl: 0.1, minRewardShare: 0.5, patience: 2 };

/** @param kl nats per token; undefined if it was not finite, so that the event lacks it. */
function event(step: number, kl: number | undefined, reward = 1): StepEvent {
  const metrics = {
    'env/all/reward/total': reward,
    ...(kl !== undefined && { kl_sample_train_v2: kl }),
  };
  return { v: 1, at: 0, kind: 'step', step, version: step, metrics };
}

describe('DivergenceWatch', () => {
  it('the watch suspects a step whose KL is out of bounds, and gives up after `patience` such steps', () => {
    const watch = new DivergenceWatch(limits, []);
    const states = [0.01, 0.2, 0.01, 0.2, 0.3].map((kl, i) => watch.judge(event(i, kl)).state);
    assert.deepEqual(states, ['healthy', 'suspect', 'healthy', 'suspect', 'diverged']);
  });

  it('the watch continues the count of earlier sessions of the run', () => {
    const watch = new DivergenceWatch(limits, [event(1, 0.01), event(2, 0.2)]);
    assert.equal(watch.judge(event(3, 0.2)).state, 'diverged');
  });

  it('the watch judges by the majority of actors if a step has those numbers', () => {
    const watch = new DivergenceWatch(limits, []);
    const oneLies = event(1, 54);
    const all = event(2, 0.01);
    const of = ({ metrics, ...rest }: StepEvent, fleet: number): StepEvent => {
      return { ...rest, metrics: { ...metrics, 'kl_sample_train_v2/fleet': fleet } };
    };
    assert.equal(watch.judge(of(oneLies, 0.01)).state, 'healthy');
    assert.equal(watch.judge(of(all, 0.2)).state, 'suspect');
  });

  it('the watch gives up at once when a step has no finite KL', () => {
    const watch = new DivergenceWatch(limits, []);
    assert.equal(watch.judge(event(1, undefined)).state, 'diverged');
  });

  it('the watch suspects a step whose reward has fallen below its share of the best', () => {
    const watch = new DivergenceWatch(limits, []);
    const rewards = [1, 1, 0.6, 0.2, 0.1];
    const verdicts = rewards.map((reward, i) => watch.judge(event(i, 0, reward)));
    assert.deepEqual(
      verdicts.map(({ state }) => state),
      ['healthy', 'healthy', 'healthy', 'suspect', 'diverged'],
    );
  });

  it('the watch treats groups without variance as a collapse only if they earn less than the run did', () => {
    const watch = new DivergenceWatch(limits, [event(1, 0, 1), event(2, 0, 1)]);
    assert.equal(watch.judgeNoSignal({ groups: 7, reward: 0.9 }), undefined);
    assert.match(
      watch.judgeNoSignal({ groups: 7, reward: 0.1 })!,
      /^7 groups in a row .* was 0\.1$/,
    );
  });
});
