import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isEvaluated, runOne, type RunOneOptions } from '../../../tools/sweep/run-one.js';

describe('the further evaluations of a finished run', () => {
  const cool = { name: 'cool', settings: { temperature: 0.3 }, where: { lag: '0' } };
  const kept = (furtherSettings: Record<string, object>, furtherEvals: object = { cool: {} }) =>
    isEvaluated({ choice: { lag: '0' }, furtherSettings, furtherEvals } as never, [cool]);

  it('a finished run is made again if a further evaluation of it is missing or has other settings now', () => {
    assert.equal(kept({ cool: { temperature: 0.3 } }), true);
    assert.equal(kept({ cool: { temperature: 0.5 } }), false);
    assert.equal(kept({}, {}), false);
    assert.equal(kept({}), true); // of an earlier version, which did not keep them
    const other = { choice: { lag: '4' }, furtherSettings: {}, furtherEvals: {} };
    assert.equal(isEvaluated(other, [cool]), true);
  });
});

describe('a run of an experiment that is stopped', () => {
  it('a run of an experiment does not start once the experiment is to stop', async () => {
    const stop = { stop: AbortSignal.abort(new Error('stopped')) };
    const options = { runsDir: '/none', further: [], env: {}, stop, onLine: () => undefined };
    await assert.rejects(
      runOne({ name: 'r', settings: {} } as never, options as unknown as RunOneOptions),
      /stopped/,
    );
  });
});
