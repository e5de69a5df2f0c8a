import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { Breakage } from '../../../learner/stop/broken-policy-watch.js';
import { DivergenceWatch } from '../../../learner/stop/divergence-watch.js';
import type { NoSignalStreak } from '../../../learner/stop/no-signal-watch.js';
import { StopConditions } from '../../../learner/stop/stop-conditions.js';
import type { StepEvent } from '../../../learner/report/history.js';
import { UserError } from '../../../shared/base/errors.js';
import { silent } from '../../support/broker.js';

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
  let giveUp: StopConditions;

  beforeEach(() => {
    dry = new AbortController();
    broken = new AbortController();
    alone = new AbortController();
    noSignalStreak = { groups: 9, reward: 1 };
    const breakage: Breakage = { groups: 12, version: 3, isContradicted: false };
    giveUp = new StopConditions({
      divergence: new DivergenceWatch(limits, []),
      noSignalStreak: {
        signal: dry.signal,
        get noSignalStreak() {
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
      [giveUp.checkStep(event(1, 0.01)), giveUp.checkStep(event(2, 0.2))],
      [true, false],
    );
    giveUp.findGroupCause(trained); // the time is up
    assert(!giveUp.signal.aborted && !giveUp.hasDiverged);
    assert.equal(giveUp.ending(1), undefined);
  });

  it('a run given up because of a step names the checkpoint that stays', () => {
    giveUp.checkStep(event(2, 0.2));
    giveUp.checkStep(event(3, 0.2));
    assert(giveUp.signal.aborted && giveUp.hasDiverged);
    const verdict = giveUp.ending(1);
    assert(verdict?.reason === 'diverged');
    assert.deepEqual([verdict.divergence.step, verdict.divergence.checkpointStep], [3, 1]);
  });

  it('a run whose groups have no variance ends as no_signal if its reward has not fallen', () => {
    giveUp.checkStep(event(1, 0));
    dry.abort();
    assert(giveUp.signal.aborted);
    giveUp.findGroupCause(trained);
    assert(!giveUp.hasDiverged);
    assert.deepEqual(giveUp.ending(1), { reason: 'no_signal', noSignalStreak });
  });

  it('a run whose groups have no variance has diverged if its reward has collapsed', () => {
    giveUp.checkStep(event(1, 0));
    giveUp.checkStep(event(2, 0));
    noSignalStreak = { groups: 9, reward: 0.1 };
    dry.abort();
    giveUp.findGroupCause(trained);
    assert.equal(giveUp.ending(1)?.reason, 'diverged');
  });

  it('a run whose policy has logprobs that are not finite is given up', () => {
    broken.abort();
    assert(giveUp.signal.aborted);
    giveUp.findGroupCause(trained);
    const verdict = giveUp.ending(2);
    assert(verdict?.reason === 'diverged');
    assert.match(verdict.divergence.reason, /last 12 groups .* version 3 .* not finite/);
  });

  it('a run whose only actor has wrong logprobs is given up', () => {
    alone.abort();
    assert(giveUp.signal.aborted);
    giveUp.findGroupCause(trained);
    const reason = 'actor-0 is the only one';
    assert.deepEqual(giveUp.ending(2), {
      reason: 'diverged',
      divergence: { step: 3, reason, cause: 'actor', checkpointStep: 2 },
    });
  });

  it('a run whose weights cannot be published is given up at the first such step', () => {
    giveUp.refuse(3, 'version 3 is not finite');
    giveUp.refuse(4, 'version 4 is not finite');
    assert(giveUp.signal.aborted && giveUp.hasDiverged);
    assert.deepEqual(giveUp.ending(2), {
      reason: 'diverged',
      divergence: { step: 3, reason: 'version 3 is not finite', checkpointStep: 2 },
    });
  });

  it('a broken policy is an error of the user only if nothing has been trained', () => {
    broken.abort();
    assert.throws(() => {
      giveUp.findGroupCause({ step: 0, unconfirmedSteps: 0 });
    }, UserError);
    giveUp.findGroupCause({ step: 0, unconfirmedSteps: 1 });
    assert(giveUp.hasDiverged);
  });
});
