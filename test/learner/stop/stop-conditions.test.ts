import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { Breakage } from '../../../learner/stop/broken-policy-watch.js';
import { DivergenceWatch } from '../../../learner/stop/divergence-watch.js';
import type { NoSignalStreak } from '../../../learner/stop/no-signal-watch.js';
import { StopConditions } from '../../../learner/stop/stop-conditions.js';
import type { StepEvent } from '../../../learner/report/history.js';
import { UserError } from '../../../shared/base/errors.js';
import { silent } from '../../support/log.js';

function event(step: number, kl: number): StepEvent {
  const metrics = { 'env/all/reward/total': 1, kl_sample_train_v2: kl };
  return { v: 1, at: 0, kind: 'step', step, version: step, metrics };
}

describe('the stop conditions, after two unhealthy steps or by a condition on groups', () => {
  const limits = { maxKl: 0.1, minRewardShare: 0.5, patience: 2 };
  const trained = { step: 3, unconfirmedSteps: 0 };
  let dry: AbortController;
  let broken: AbortController;
  let alone: AbortController;
  let noSignalStreak: NoSignalStreak;
  let stopConditions: StopConditions;

  beforeEach(() => {
    dry = new AbortController();
    broken = new AbortController();
    alone = new AbortController();
    noSignalStreak = { groups: 9, reward: 1 };
    const breakage: Breakage = { groups: 12, version: 3, isContradicted: false };
    stopConditions = new StopConditions({
      divergence: new DivergenceWatch(limits, []),
      noSignal: {
        signal: dry.signal,
        get streak() {
          return noSignalStreak;
        },
      },
      brokenPolicy: { signal: broken.signal, breakage },
      audit: {
        signal: alone.signal,
        get reason() {
          return alone.signal.aborted ? 'actor-0 is the only one' : undefined;
        },
      },
      log: silent,
    });
  });

  it('a run is not given up while no stop condition holds', () => {
    assert.deepEqual(
      [stopConditions.checkStep(event(1, 0.01)), stopConditions.checkStep(event(2, 0.2))],
      [true, false],
    );
    stopConditions.findGroupCause(trained); // the time is up
    assert(!stopConditions.signal.aborted && !stopConditions.hasDiverged);
    assert.equal(stopConditions.ending(1), undefined);
  });

  it('a run given up because of a step names the checkpoint that stays', () => {
    stopConditions.checkStep(event(2, 0.2));
    stopConditions.checkStep(event(3, 0.2));
    assert(stopConditions.signal.aborted && stopConditions.hasDiverged);
    const verdict = stopConditions.ending(1);
    assert(verdict?.reason === 'diverged');
    assert.deepEqual([verdict.divergence.step, verdict.divergence.checkpointStep], [3, 1]);
  });

  it('a run whose groups have no variance ends as no_signal if its reward has not fallen', () => {
    stopConditions.checkStep(event(1, 0));
    dry.abort();
    assert(stopConditions.signal.aborted);
    stopConditions.findGroupCause(trained);
    assert(!stopConditions.hasDiverged);
    assert.deepEqual(stopConditions.ending(1), { reason: 'no_signal', noSignalStreak });
  });

  it('a run whose groups have no variance has diverged if its reward has collapsed', () => {
    stopConditions.checkStep(event(1, 0));
    stopConditions.checkStep(event(2, 0));
    noSignalStreak = { groups: 9, reward: 0.1 };
    dry.abort();
    stopConditions.findGroupCause(trained);
    assert.equal(stopConditions.ending(1)?.reason, 'diverged');
  });

  it('a run whose policy has logprobs that are not finite is given up', () => {
    broken.abort();
    assert(stopConditions.signal.aborted);
    stopConditions.findGroupCause(trained);
    const verdict = stopConditions.ending(2);
    assert(verdict?.reason === 'diverged');
    assert.match(verdict.divergence.reason, /last 12 groups .* version 3 .* not finite/);
  });

  it('a run whose only actor has wrong logprobs is given up', () => {
    alone.abort();
    assert(stopConditions.signal.aborted);
    stopConditions.findGroupCause(trained);
    const reason = 'actor-0 is the only one';
    assert.deepEqual(stopConditions.ending(2), {
      reason: 'diverged',
      divergence: { step: 3, reason, cause: 'actor', checkpointStep: 2 },
    });
  });

  it('a run whose weights cannot be published is given up at the first such step', () => {
    stopConditions.giveUp(3, 'version 3 is not finite');
    stopConditions.giveUp(4, 'version 4 is not finite');
    assert(stopConditions.signal.aborted && stopConditions.hasDiverged);
    assert.deepEqual(stopConditions.ending(2), {
      reason: 'diverged',
      divergence: { step: 3, reason: 'version 3 is not finite', checkpointStep: 2 },
    });
  });

  it('a broken policy is an error of the user only if nothing has been trained', () => {
    broken.abort();
    assert.throws(() => {
      stopConditions.findGroupCause({ step: 0, unconfirmedSteps: 0 });
    }, UserError);
    stopConditions.findGroupCause({ step: 0, unconfirmedSteps: 1 });
    assert(stopConditions.hasDiverged);
  });
});
