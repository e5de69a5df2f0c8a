import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Checkpointer } from '../../../learner/checkpoints/checkpointer.js';
import { Meter } from '../../../learner/cost/meter.js';
import { TokenAccount } from '../../../learner/cost/token-account.js';
import { UnackedGroups } from '../../../learner/groups/unacked-groups.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { PermanentError } from '../../../shared/base/errors.js';
import type { Checkpoint, SavedState } from '../../../shared/wire/ledger.js';
import { newTicketKey } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/log.js';
import { gate } from '../../support/waiting.js';

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
  const meter = new Meter(() => 0);
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
    meter,
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
  return { ledger, save, checkpointer, meter };
}

const listed = ({ states }: Checkpoint) => states?.map(({ step }) => step);

describe('the checkpointer', () => {
  /** A checkpointer with three unacknowledged messages, and what it did. */
  function setUp({ keepEverySteps = 0, states = [] as SavedState[] } = {}) {
    const happened: string[] = [];
    const ledger: Checkpoint[] = [];
    const saved = gate();
    const unacked = new UnackedGroups();
    const record = (event: string) => () => {
      happened.push(event);
      return Promise.resolve();
    };
    for (const seq of [1, 2, 3]) {
      const working = () => void happened.push(`working ${seq}`);
      unacked.hold({ seq, working, ack: record(`ack ${seq}`) }, seq + 10, `m-${seq}`);
    }
    const checkpointer = new Checkpointer({
      checkpoints: {
        stateOnDisk: undefined,
        write: (checkpoint) => {
          ledger.push(structuredClone(checkpoint));
          return record(`ledger ${checkpoint.step} ${checkpoint.statePath}`)();
        },
      },
      client: { deleteCheckpoint: (path) => record(`delete ${path}`)() },
      run: {
        saveState: async (name) => {
          happened.push(`save ${name}`);
          await saved.opened;
          return `tinker://run/weights/${name}`;
        },
      },
      ticketKey: newTicketKey(),
      usualHoldSeconds: () => undefined,
      unacked,
      meter: new Meter(() => 0),
      idle: new IdleClock(() => 0),
      restored: {
        ...{ v: 1, ...table, step: 4, version: 6, progress: 0.4, rewinds: [{ from: 6, to: 4 }] },
        ...{ statePath: 'tinker://run/weights/old', savedAt: 1 },
      },
      states,
      keepEverySteps,
      log: silent,
    });
    return { happened, ledger, saved, unacked, checkpointer };
  }

  it('the evaluation of restored weights reaches the ledger, although no step may follow', async () => {
    const { ledger, checkpointer } = setUp();
    await checkpointer.scored(4, 0.5, 64);
    const path = 'tinker://run/weights/old';
    assert.equal(ledger.length, 1);
    assert.deepEqual(ledger[0]!.states, [{ step: 4, path, score: 0.5 }]);
    assert.deepEqual([ledger[0]!.statePath, ledger[0]!.rewinds], [path, [{ from: 6, to: 4 }]]);
  });

  it('the checkpointer acknowledges consumed messages only after the ledger names their state', async () => {
    const { happened, saved, unacked, checkpointer } = setUp();
    const consumed = new Set([11, 13]); // orders
    const covered = () => unacked.covered((order) => consumed.has(order));
    const saving = checkpointer.save(5);
    const written = saving.write({
      step: 5,
      version: 5,
      progress: 0.5,
      table,
      rewinds: [],
      messages: covered(),
    });
    consumed.add(12); // by the next step
    assert.deepEqual(happened, ['save state-000005']);
    saved.open();
    await written;
    const path = 'tinker://run/weights/state-000005';
    assert.deepEqual(happened, ['save state-000005', `ledger 5 ${path}`, 'ack 1', 'ack 3']);
    assert.deepEqual(
      covered().map(({ lease }) => lease.seq),
      [2],
    );
  });

  it('the checkpointer deletes a discarded state and saves its step again on request', async () => {
    const { happened, saved, checkpointer } = setUp();
    saved.open();
    await checkpointer.save(5).discard();
    assert.equal(checkpointer.writtenStep, 4);
    const consumed = { step: 5, version: 5, progress: 0.5, table, rewinds: [], messages: [] };
    await checkpointer.save(5).write(consumed);
    assert.equal(checkpointer.writtenStep, 5);
    const path = 'tinker://run/weights/state-000005';
    assert.deepEqual(happened, [
      'save state-000005',
      `delete ${path}`,
      'save state-000005',
      `ledger 5 ${path}`,
    ]);
  });

  it('unacked groups extend the ack wait of exactly the messages that no checkpoint covers', async () => {
    const { happened, saved, unacked, checkpointer } = setUp();
    saved.open();
    const messages = unacked.covered((order) => order !== 12);
    const consumed = { step: 5, version: 5, progress: 0, table, rewinds: [], messages };
    await checkpointer.save(5).write(consumed);
    happened.length = 0;
    unacked.extendLeases();
    assert.deepEqual(happened, ['working 2']);
  });

  it('the checkpointer saves each step once and keeps the two newest states', async () => {
    const { happened, saved, checkpointer } = setUp();
    saved.open();
    const consumed = { version: 5, progress: 0.5, table, rewinds: [], messages: [] };
    await checkpointer.save(4).write({ ...consumed, step: 4 }); // the restored one
    await checkpointer.save(5).write({ ...consumed, step: 5 });
    await checkpointer.save(5).write({ ...consumed, step: 5 });
    await checkpointer.save(6).write({ ...consumed, step: 6 });
    assert.deepEqual(
      happened.filter((event) => !event.startsWith('ledger')),
      ['save state-000005', 'save state-000006', 'delete tinker://run/weights/old'],
    );
  });

  it('the checkpointer keeps every tenth step and the best state, across sessions', async () => {
    const former = { step: 2, path: 'tinker://former/weights/state-000002' };
    const options = { keepEverySteps: 10, states: [former] };
    const { happened, ledger, saved, checkpointer } = setUp(options);
    saved.open();
    for (let step = 5; step <= 60; step++) {
      const consumed = { step, version: step, progress: 0, table, rewinds: [], messages: [] };
      await checkpointer.save(step).write(consumed);
      await checkpointer.scored(step, step === 17 ? 0.5 : 0.1, 64);
    }
    const states = ledger.at(-1)!.states!;
    const left = states.filter(({ path }) => !happened.includes(`delete ${path}`));
    assert.deepEqual(
      left.map(({ step }) => step),
      [10, 17, 20, 30, 40, 50, 59, 60],
    );
    assert.deepEqual(states, left); // written again with the last score
  });
});

describe('the state of the best evaluation', () => {
  const deleting = () => Promise.resolve();
  const scores = ({ states }: Checkpoint) => states!.map(({ step, score }) => [step, score]);

  it('the ledger lists the score of a state at once, even if no checkpoint follows', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    await save(1);
    await save(2);
    const before = ledger.at(-1)!;
    await checkpointer.scored(2, 0.7, 64);
    assert.deepEqual(scores(ledger.at(-1)!), [
      [1, undefined],
      [2, 0.7],
    ]);
    assert.deepEqual({ ...ledger.at(-1)!, states: [] }, { ...before, states: [] });
  });

  it('with a score the ledger gets what the evaluation has used, though no step follows', async () => {
    const { ledger, checkpointer, meter } = bench(deleting);
    const usage = { tokens: new TokenAccount().totals, counted: [], meter: meter.totals };
    await checkpointer
      .save(1)
      .write({ step: 1, version: 1, progress: 0, table, rewinds: [], usage, messages: [] });
    meter.evaluated(20, 7);
    await checkpointer.scored(1, 0.7, 64);
    const { evaluated, evaluatedPrompts } = ledger.at(-1)!.usage!.meter;
    assert.deepEqual([evaluated, evaluatedPrompts], [20, 7]);
  });

  it('a score that is known before its checkpoint is written is listed with the state', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    await checkpointer.scored(1, 0.7, 64);
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
    await checkpointer.scored(3, 0.5, 64);
    assert.deepEqual(listed(ledger.at(-1)!), [1, 3, 4]);
    underEvaluation = [];
    await checkpointer.scored(1, 0.4, 64);
    await save(5);
    assert.deepEqual(listed(ledger.at(-1)!), [3, 4, 5]);
  });

  it('the best state of an earlier session stays the best in a new session', async () => {
    const path = (step: number) => `tinker://former/weights/${step}`;
    const former = [10, 20, 30].map((step) => ({ step, path: path(step) }));
    const { ledger, save, checkpointer } = bench(deleting, former);
    checkpointer.remember([
      [10, 0.8, 64],
      [20, 0.3, 64],
    ]);
    for (const step of [40, 50, 60]) {
      await save(step);
      await checkpointer.scored(step, 0.5, 64);
    }
    assert.deepEqual(scores(ledger.at(-1)!), [
      [10, 0.8],
      [50, 0.5],
      [60, 0.5],
    ]);
  });
});

describe('the best states of evaluations over different numbers of problems', () => {
  const deleting = () => Promise.resolve();
  const scores = ({ states }: Checkpoint) => states!.map(({ step, score }) => [step, score]);

  it('a score over few problems hides no score over many: the best state of each number is kept', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    await save(1);
    await checkpointer.scored(1, 0.6, 1_024);
    for (const step of [2, 3, 4, 5, 6]) {
      await save(step);
      await checkpointer.scored(step, step === 3 ? 0.7 : 0.5, 64);
    }
    assert.deepEqual(listed(ledger.at(-1)!), [1, 3, 5, 6]);
  });

  it('the ledger lists only scores over as many problems as the newest evaluation of a saved state', async () => {
    const { ledger, save, checkpointer } = bench(deleting);
    await save(1);
    await checkpointer.scored(1, 0.9, 64);
    await save(2);
    await checkpointer.scored(2, 0.6, 1_024);
    assert.deepEqual(scores(ledger.at(-1)!), [
      [1, undefined],
      [2, 0.6],
    ]);
    await checkpointer.scored(7, 0.9, 64); // its state is not saved, so there is nothing to choose
    await save(3);
    assert.deepEqual(scores(ledger.at(-1)!), [
      [1, undefined],
      [2, 0.6],
      [3, undefined],
    ]);
    await checkpointer.scored(1, 0.5, 1_024); // evaluated again
    assert.deepEqual(scores(ledger.at(-1)!).slice(0, 2), [
      [1, 0.5],
      [2, 0.6],
    ]);
  });

  it('the best state over other problems stays in a new session, which reads its score from the events', async () => {
    const path = (step: number) => `tinker://former/weights/${step}`;
    const former = [10, 20, 30].map((step) => ({ step, path: path(step) }));
    const { ledger, save, checkpointer } = bench(deleting, former);
    checkpointer.remember([
      [10, 0.8, 1_024],
      [20, 0.9, 64],
    ]);
    for (const step of [40, 50, 60]) await save(step);
    assert.deepEqual(scores(ledger.at(-1)!), [
      [10, undefined],
      [20, 0.9],
      [40, undefined], // listed until it is deleted
      [50, undefined],
      [60, undefined],
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
