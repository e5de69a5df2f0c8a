import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { LearningRateSchedule } from '../../../learner/step/learning-rate-schedule.js';
import { runConfig } from '../../support/messages.js';

/** Starts a session of a run whose schedule has ended at step 100, and returns what it logs. */
function resumed(
  finalShare: number,
  over: object = {},
  kind: 'cosine' | 'constant' = 'cosine',
  hasEnded = true,
) {
  const logged: object[] = [];
  const adam = { ...runConfig().adam, learningRate: 2e-3 };
  const config = runConfig({ run: 'r', adam, schedule: { kind, warmupSteps: 0, finalShare } });
  const progress = { progressBefore: 1, stepBefore: 100, maxSteps: 500, maxSeconds: Infinity };
  const schedule = new LearningRateSchedule(config, { ...progress, ...over }, () => 0);
  schedule.checkStart({ warn: (fields: object) => logged.push(fields) }, hasEnded);
  return logged;
}

describe('the learning rate of a run that is resumed at the end of its schedule', () => {
  it('a session that would train at rate 0 is refused, and the setting is named', () => {
    assert.throws(() => resumed(0), {
      name: 'UserError',
      message: /run r .*--schedule cosine.*--final-rate-share 0.*--from r$/,
    });
  });

  it('a session of a run that a crash kept from its end is not refused, and says that it trains nothing', () => {
    assert.deepEqual(resumed(0, {}, 'cosine', false), [{ step: 100 }]);
  });

  it('a session that trains at the final rate logs it', () => {
    assert.deepEqual(resumed(0.1), [{ learningRate: 2e-4 }]);
  });

  it('a session without steps, one in the middle of its schedule, and a constant rate need no warning', () => {
    assert.deepEqual(resumed(0, { maxSteps: 100 }), []);
    assert.deepEqual(resumed(0, { maxSteps: Infinity, maxSeconds: 0 }), []);
    assert.deepEqual(resumed(0, { progressBefore: 0.99 }), []);
    assert.deepEqual(resumed(1, {}, 'constant'), []);
  });
});
