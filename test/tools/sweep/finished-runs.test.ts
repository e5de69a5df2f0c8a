import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import type { AppliedRun } from '../../../tools/sweep/applied-settings.js';
import { finishedRuns, outdatedText } from '../../../tools/sweep/finished-runs.js';
import { runResult } from './values.js';

describe('the finished runs of an experiment', async () => {
  const { digest } = await readModelDirectory(embeddedModelPath);
  const result = runResult({ lag: '0' }, 1, [1], { modelDigest: digest });
  const applied = { learner: { groupSize: 16 } };
  const run: AppliedRun = { ...result, applied };
  const found = (over: object) =>
    finishedRuns([run], { read: () => Promise.resolve({ ...result, ...over }) }, []);

  it('a result counts if the settings that applied to it are those of now', async () => {
    const { done, outdated } = await found({ applied });
    assert.deepEqual([[...done.keys()], outdated.size], [['0-s1'], 0]);
  });

  it('a result does not count if another default applied, or if it does not say which', async () => {
    const other = await found({ applied: { learner: { groupSize: 64 } } });
    assert.equal(other.done.size, 0);
    assert.equal(
      outdatedText(other.outdated),
      'stored results that do not count, so that their runs are to be made again:\n' +
        '  - 0-s1: --group-size of learner was 64 and is 16 now',
    );
    assert.match(outdatedText(other.outdated, true), /^the report has stored results .*\n.*0-s1/);
    const old = await found({});
    assert.equal(old.done.size, 0);
    assert.deepEqual([...old.stored.keys()], ['0-s1']); // of which a report can be made
    assert.match(outdatedText(old.outdated), /0-s1: it does not say which defaults applied/);
  });

  it('a result of another model does not count, whatever its settings', async () => {
    const { done, outdated } = await found({ applied, modelDigest: 'a0b1' });
    assert.deepEqual([done.size, [...outdated.values()]], [0, ['the model is another one now']]);
  });
});
