import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import {
  breakageReason,
  BrokenPolicyWatch,
  isPolicyBroken,
  type Probe,
} from '../../../learner/stop/broken-policy-watch.js';
import { TicketTable } from '../../../learner/tickets/ticket-table.js';
import { UserError } from '../../../shared/base/errors.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { silent } from '../../support/log.js';
import { rolloutGroup } from '../../support/messages.js';

/** The first version of this session, which has published one more. */
const first = 5;

describe('BrokenPolicyWatch, with batches of ten groups', () => {
  let table: TicketTable<string>;
  let watch: BrokenPolicyWatch;
  let trainer: 'broken' | 'finite' | 'away';
  let probes: Probe[];
  const watchOf = (groupsPerBatch: number) =>
    new BrokenPolicyWatch({
      ...{ groupsPerBatch, firstVersion: first, log: silent },
      isBroken: (probe) => {
        probes.push(probe);
        if (trainer === 'away') return Promise.reject(new Error('no answer'));
        return Promise.resolve(trainer === 'broken');
      },
    });
  /** Resolves once the trainer has answered all requests. */
  const answered = () => new Promise((resolve) => setImmediate(resolve));
  const group = rolloutGroup();
  /** Issues `count` tickets. */
  const issue = (count: number) => {
    for (let i = 0; i < count; i += 1) table.issue(first, first);
  };
  /** Lets `count` tickets die without a group, the oldest first, and replaces each. */
  const die = (count: number, version = first + 1, but: readonly number[] = []) => {
    for (let i = 0; i < count; i += 1) {
      const out = table.entries().filter(({ state }) => state === 'issued');
      const { order } = out.find(({ order }) => !but.includes(order))!;
      table.markDead(order);
      watch.died(version, table);
      issue(1);
    }
  };

  beforeEach(() => {
    table = new TicketTable();
    trainer = 'broken';
    probes = [];
    watch = watchOf(10);
    issue(4);
  });

  it('the watch aborts when a batch and all tickets outstanding at that point have died', async () => {
    die(9);
    await answered();
    assert(!watch.signal.aborted);
    die(1); // three more are outstanding and may still yield groups
    await answered();
    assert(!watch.signal.aborted);
    die(2);
    await answered();
    assert(!watch.signal.aborted);
    die(1);
    await answered();
    assert(watch.signal.aborted);
    assert.deepEqual(watch.breakage, { groups: 13, version: 6, isContradicted: false });
  });

  it('the watch restarts its streak when a group arrives', async () => {
    die(9);
    table.arrive(table.entries()[0]!.order, 'a group', 9);
    watch.arrived(group);
    issue(1);
    die(12);
    await answered();
    assert(!watch.signal.aborted);
    die(1);
    await answered();
    assert(watch.signal.aborted);
  });

  it('the watch waits for an actor that still samples, however fast another one fails', async () => {
    die(100, first + 1, [2]);
    await answered();
    assert(!watch.signal.aborted);
    table.retryOrEnd(2); // its group is too old, and its ticket is issued again
    die(1);
    await answered();
    assert(!watch.signal.aborted);
    table.reissue(2, first, first);
    die(1, first + 1, [2]);
    await answered();
    assert(!watch.signal.aborted);
    table.markDead(2);
    watch.died(first + 1, table);
    await answered();
    assert(watch.signal.aborted);
  });

  it('the watch does not wait for a group that has arrived but lacks others to be trained with', async () => {
    table.arrive(0, 'a group', 9);
    watch.arrived(group);
    die(13);
    await answered();
    assert(watch.signal.aborted);
  });

  it('the watch ignores versions that earlier sessions have published', async () => {
    die(100, first - 1);
    await answered();
    assert(!watch.signal.aborted);
    assert.equal(watch.breakage.groups, 0);
  });

  it('the watch requires at least eight groups, however small a batch is', async () => {
    watch = watchOf(1);
    die(7);
    await answered();
    assert(!watch.signal.aborted);
    die(4);
    await answered();
    assert(watch.signal.aborted);
  });

  it('the watch keeps the breakage that ended it, whatever follows', async () => {
    die(20);
    await answered();
    watch.arrived(group);
    assert.equal(watch.breakage.groups, 20);
  });

  it('the run continues while the trainer has finite logprobs, since one actor may answer for all others', async () => {
    trainer = 'finite';
    for (let batch = 1; batch < 10; batch += 1) {
      die(13);
      await answered();
      assert.equal(probes.length, batch);
      assert(!watch.signal.aborted);
      assert.equal(watch.breakage.groups, 0);
    }
    table.arrive(table.entries()[0]!.order, 'a group', 9);
    watch.arrived(group);
    issue(1);
    for (let batch = 1; batch < 10; batch += 1) {
      die(13);
      await answered();
    }
    assert(!watch.signal.aborted);
    die(13); // the tenth time: no other actor answers, so waiting longer is useless
    await answered();
    assert(watch.signal.aborted);
    assert.equal(watch.breakage.isContradicted, true);
  });

  it('the watch asks the trainer for the logprobs of the group that arrived last', async () => {
    die(13);
    await answered();
    assert.deepEqual([...probes[0]!.promptTokens], [0]);
    watch = watchOf(10);
    watch.arrived(group);
    die(13);
    await answered();
    assert.deepEqual(probes[1]!.promptTokens, group.promptTokens);
    assert.equal(probes[1]!.rollouts.length, 1);
  });

  it('the watch asks the trainer again when the backend did not answer', async () => {
    trainer = 'away';
    die(13);
    await answered();
    assert(!watch.signal.aborted);
    trainer = 'broken';
    die(1);
    await answered();
    assert(watch.signal.aborted);
  });

  it('the watch does not abort if a group arrives while it asks the trainer', async () => {
    die(13);
    watch.arrived(group);
    await answered();
    assert(!watch.signal.aborted);
  });
});

describe('isPolicyBroken', () => {
  const ask = async (logprob: number) => {
    const calls: unknown[] = [];
    const run = {
      forward: (data: readonly Datum[], loss: string, config: object) => {
        calls.push([loss, config]);
        const logprobs = data.map(({ tokens }) => new Float32Array(tokens.length).fill(-1));
        logprobs.at(-1)![1] = logprob;
        return Promise.resolve({ logprobs, metrics: {} });
      },
    };
    const isBroken = await isPolicyBroken(run, 0.7, rolloutGroup());
    assert.deepEqual(calls, [['cross_entropy', { temperature: 0.7 }]]);
    return isBroken;
  };

  it('a policy is broken if any of its own logprobs is not finite', async () => {
    assert.equal(await ask(-2), false);
    assert.equal(await ask(NaN), true);
    assert.equal(await ask(-Infinity), true);
  });
});

describe('breakageReason', () => {
  const breakage = { groups: 13, version: 6, isContradicted: false };

  it('a broken policy is a divergence once something was trained', () => {
    assert.match(breakageReason(breakage, true), /last 13 groups .* version 6 .* not finite$/);
    const contradicted = { ...breakage, isContradicted: true };
    assert.match(breakageReason(contradicted, true), /those of the trainer are finite$/);
  });

  it('a policy that is broken before any training is an error of the user', () => {
    assert.throws(() => breakageReason(breakage, false), UserError);
  });
});
