import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Checkpointer } from '../../../learner/checkpoints/checkpointer.js';
import { Unsettled } from '../../../learner/groups/unsettled.js';
import { IdleClock } from '../../../learner/idle-clock.js';
import { PermanentError } from '../../../shared/errors.js';
import type { Checkpoint } from '../../../shared/wire/ledger.js';
import { silent } from '../../support/broker.js';

const counts = {
  ...{ issued: 0, trained: 0, skippedZeroVariance: 0, stale: 0, dead: 0, outstanding: 0 },
};
const book = { nextOrder: 0, consumedBelow: 0, consumedAbove: [], counts };

/** A checkpointer whose backend deletes as told. */
function bench(deletes: (path: string) => Promise<void>) {
  const ledger: Checkpoint[] = [];
  const checkpointer = new Checkpointer({
    ledger: { write: (checkpoint) => Promise.resolve(void ledger.push(checkpoint)) },
    client: { deleteCheckpoint: deletes },
    run: { saveState: (name) => Promise.resolve(name) },
    unsettled: new Unsettled(),
    idle: new IdleClock(() => 0),
    restored: undefined,
    states: [],
    keepEverySteps: 0,
    log: silent,
  });
  const save = (step: number) =>
    checkpointer
      .save(step)
      .write({ ...{ step, version: step, progress: 0, book, rewinds: [], messages: [] } });
  return { ledger, save };
}

describe('a state that nobody needs any more', () => {
  const listed = ({ states }: Checkpoint) => states?.map(({ step }) => step);

  it('stays in the ledger until the backend has deleted it', async () => {
    let isAway = true;
    const asked: string[] = [];
    const { ledger, save } = bench((path) => {
      asked.push(path);
      return isAway ? Promise.reject(new Error('the backend is away')) : Promise.resolve();
    });
    for (const step of [1, 2, 3, 4]) await save(step);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 2, 3, 4]);
    isAway = false;
    await save(5);
    await save(6);
    assert.deepEqual(listed(ledger.at(-1)!), [4, 5, 6]);
    assert.deepEqual(asked.slice(0, 3), ['state-000001', 'state-000001', 'state-000002']);
  });

  it('is forgotten if the backend will never delete it', async () => {
    const { ledger, save } = bench(() => Promise.reject(new PermanentError('not to be deleted')));
    for (const step of [1, 2, 3, 4]) await save(step);
    assert.deepEqual(listed(ledger.at(-1)!), [2, 3, 4]);
  });
});
