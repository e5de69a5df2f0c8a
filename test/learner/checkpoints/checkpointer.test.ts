import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Checkpointer } from '../../../learner/checkpoints/checkpointer.js';
import { UnackedGroups } from '../../../learner/groups/unacked-groups.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { PermanentError } from '../../../shared/base/errors.js';
import type { Checkpoint, SavedState } from '../../../shared/wire/ledger.js';
import { newTicketKey } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/broker.js';

const counts = {
  issued: 0,
  trained: 0,
  skippedZeroVariance: 0,
  stale: 0,
  dead: 0,
  outstanding: 0,
};
const table = { nextOrder: 0, consumedBelow: 0, consumedAbove: [], counts };

/** A checkpointer whose backend deletes states with `deletes`. */
function bench(
  deletes: (path: string) => Promise<void>,
  states: SavedState[] = [],
  stateOnDisk?: string,
) {
  const ledger: Checkpoint[] = [];
  const checkpointer = new Checkpointer({
    checkpoints: {
      stateOnDisk,
      write: (checkpoint) => Promise.resolve(void ledger.push(checkpoint)),
    },
    client: { deleteCheckpoint: deletes },
    run: { saveState: (name) => Promise.resolve(name) },
    ticketKey: newTicketKey(),
    usualHoldSeconds: () => 1.5,
    unacked: new UnackedGroups(),
    idle: new IdleClock(() => 0),
    restored: undefined,
    states,
    keepEverySteps: 0,
    log: silent,
  });
  const save = (step: number) =>
    checkpointer
      .save(step)
      .write({ step, version: step, progress: 0, table, rewinds: [], messages: [] });
  return { ledger, save, checkpointer };
}

const listed = ({ states }: Checkpoint) => states?.map(({ step }) => step);

describe('the state of the best evaluation', () => {
  const deleting = () => Promise.resolve();
  const scores = ({ states }: Checkpoint) => states!.map(({ step, score }) => [step, score]);

  it('the ledger lists the score of a state at once, even if no checkpoint follows', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    await save(1);
    await save(2);
    const before = ledger.at(-1)!;
    await checkpointer.scored(2, 0.7);
    assert.deepEqual(scores(ledger.at(-1)!), [
      [1, undefined],
      [2, 0.7],
    ]);
    assert.deepEqual({ ...ledger.at(-1)!, states: [] }, { ...before, states: [] });
  });

  it('a score that is known before its checkpoint is written is listed with the state', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    await checkpointer.scored(1, 0.7);
    assert.equal(ledger.length, 0);
    for (const step of [1, 2, 3, 4]) await save(step);
    assert.deepEqual(scores(ledger.at(-1)!)[0], [1, 0.7]);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 2, 3, 4]);
    await save(5);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 3, 4, 5]);
  });

  it('a state under evaluation is kept until a worse score is known', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    let underEvaluation = [1];
    checkpointer.keepStatesOf(() => underEvaluation);
    for (const step of [1, 2, 3, 4]) await save(step);
    await checkpointer.scored(3, 0.5);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 3, 4]);
    underEvaluation = [];
    await checkpointer.scored(1, 0.4);
    await save(5);
    assert.deepEqual(listed(ledger.at(-1)!), [3, 4, 5]);
  });

  it('the best state of an earlier session stays the best in a new session', async () => {
    const path = (step: number) => `tinker://former/weights/${step}`;
    const former = [10, 20, 30].map((step) => ({ step, path: path(step) }));
    const { ledger, save, checkpointer } = bench(deleting, former);
    checkpointer.remember([
      [10, 0.8],
      [20, 0.3],
    ]);
    for (const step of [40, 50, 60]) {
      await save(step);
      await checkpointer.scored(step, 0.5);
    }
    assert.deepEqual(scores(ledger.at(-1)!), [
      [10, 0.8],
      [50, 0.5],
      [60, 0.5],
    ]);
  });
});

describe('a checkpoint', () => {
  it('a checkpoint stores the median hold time for the learner that resumes from it', async () => {
    const { ledger, save } = bench(() => Promise.resolve());
    await save(1);
    assert.equal(ledger.at(-1)!.usualHoldSeconds, 1.5);
  });
});

describe('an old state', () => {
  it('an old state stays in the ledger until the backend has deleted it', async () => {
    let isUnavailable = true;
    const deletions: string[] = [];
    const { ledger, save } = bench((path) => {
      deletions.push(path);
      return isUnavailable ? Promise.reject(new Error('backend unavailable')) : Promise.resolve();
    });
    for (const step of [1, 2, 3, 4]) await save(step);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 2, 3, 4]);
    isUnavailable = false;
    await save(5);
    await save(6);
    assert.deepEqual(listed(ledger.at(-1)!), [4, 5, 6]);
    assert.deepEqual(deletions.slice(0, 3), ['state-000001', 'state-000001', 'state-000002']);
  });

  it('the deletion of a discarded state is retried after the backend failed to delete it', async () => {
    let isUnavailable = true;
    const deletions: string[] = [];
    const { save, checkpointer } = bench((path) => {
      deletions.push(path);
      return isUnavailable ? Promise.reject(new Error('backend unavailable')) : Promise.resolve();
    });
    await checkpointer.save(1).discard();
    isUnavailable = false;
    await save(2);
    await save(3);
    assert.deepEqual(deletions, ['state-000001', 'state-000001']);
  });

  it('an old state stays while the checkpoint copy in the run folder names it', async () => {
    const { ledger, save } = bench(() => Promise.resolve(), [], 'state-000001');
    for (const step of [1, 2, 3, 4, 5]) await save(step);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 3, 4, 5]);
  });

  it('an old state that the backend will never delete is removed from the ledger', async () => {
    const { ledger, save } = bench(() => Promise.reject(new PermanentError('not to be deleted')));
    for (const step of [1, 2, 3, 4]) await save(step);
    assert.deepEqual(listed(ledger.at(-1)!), [2, 3, 4]);
  });
});
