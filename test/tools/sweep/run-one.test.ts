import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadUpConfig } from '../../../cli/up/load-up-config.js';
import { LearnerConfig } from '../../../learner/config.js';
import { flagsOf } from '../../../tools/sweep/run-one.js';

describe('the flags of a run of an experiment', () => {
  it('a run of an experiment has no dashboard, unless its settings ask for one', () => {
    const dashboardWith = (settings: Record<string, boolean>) =>
      loadUpConfig(LearnerConfig, flagsOf({ settings }), {}).config.dashboard;
    assert.deepEqual([dashboardWith({}), dashboardWith({ dashboard: true })], [false, true]);
  });
});
