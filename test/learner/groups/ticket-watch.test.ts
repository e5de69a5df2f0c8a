import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HoldTimes } from '../../../learner/groups/hold-times.js';
import { TicketWatch } from '../../../learner/groups/ticket-watch.js';
import type { TicketLook } from '../../../shared/broker/queue-look.js';
import type { Attempt } from '../../../shared/wire/ticket-ids.js';
import { createRandom } from '../../../shared/base/random.js';
import { FlowModel } from '../support/flow-model.js';

describe('a learner that looks for lost and overdue tickets', () => {
  it('finds each that is in no queue, and none that is, whatever is held and happens between its questions', async () => {
    let [lost, overdue, held] = [0, 0, 0];
    for (let seed = 0; seed < 200; seed += 1) {
      const model = new FlowModel(createRandom(`flow ${seed}`));
      for (let i = 0; i < 200; i += 1) {
        await model.move();
        const wrong = model.found.filter((id) => !model.lost.has(id));
        assert.deepEqual(wrong, [], `history ${seed}, move ${i}`);
      }
      await model.settle();
      const inVain = model.awaited.filter((id) => !model.inHands.includes(id));
      assert.deepEqual(inVain, [], `history ${seed} waits in vain`);
      assert.deepEqual(model.found.toSorted(), [...model.lost].toSorted(), `history ${seed}`);
      lost += model.lost.size;
      overdue += model.overdue.length;
      held += model.inHands.length;
    }
    assert(lost > 200, `${lost} were lost in all`);
    assert(overdue > 50 && held > 50, `${overdue} were overdue, ${held} held by reward services`);
  });
});

/** A watch whose clock and queue the test moves by hand. */
class Bench {
  awaited: Attempt[] = [];
  queue: TicketLook = { tickets: [], isWhole: true };
  seconds = 0;
  isAnyoneThere = true;
  isAllowed = true;
  readonly told: string[] = [];
  readonly holdTimes = new HoldTimes({ fixedSeconds: 10, leaseSeconds: 1 });
  readonly watch = new TicketWatch({
    awaited: () => this.awaited,
    look: () => Promise.resolve(this.queue),
    pass: () => ({ isOver: () => Promise.resolve(true), inHands: [] }),
    withdraw: (seq) => {
      this.told.push(`withdraw ${seq}`);
      return Promise.resolve(this.isAllowed);
    },
    isAnyoneThere: () => this.isAnyoneThere,
    holdTimes: this.holdTimes,
    now: () => this.seconds,
    onLost: ({ ticketId }) => this.told.push(`${ticketId} lost`),
    onOverdue: ({ ticketId, attempt }) => this.told.push(`${ticketId}.${attempt} overdue`),
    onHeld: ({ tickets }) => this.told.push(`${tickets} held`),
  });

  async looks(count: number, everySeconds = 2): Promise<void> {
    for (let i = 0; i < count; i += 1) {
      this.seconds += everySeconds;
      await this.watch.look();
    }
  }
}

const first = { ticketId: 'train-00000000', attempt: 0 };
const second = { ticketId: 'train-00000001', attempt: 0 };

describe('a watch over two tickets with a limit of ten seconds', () => {
  it('lets a ticket wait for an actor as long as it takes, and counts from when one has it', async () => {
    const bench = new Bench();
    bench.awaited = [first, second];
    bench.queue = {
      tickets: [
        { seq: 1, ticket: first, isTaken: true },
        { seq: 2, ticket: second, isTaken: false },
      ],
      isWhole: true,
    };
    await bench.looks(6);
    assert.deepEqual(bench.told, []);
    await bench.looks(1);
    assert.deepEqual(bench.told, ['withdraw 1', 'train-00000000.0 overdue', '1 held']);
  });

  it('counts no time in which nobody was there to sample, or the learner itself stood still', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    bench.isAnyoneThere = false;
    await bench.looks(100);
    bench.isAnyoneThere = true;
    await bench.looks(2, 3_600);
    assert.deepEqual(bench.told, []);
    await bench.looks(1);
    assert.deepEqual(bench.told, []);
    await bench.looks(1);
    assert.equal(bench.told.length, 3);
  });

  it('takes back the second attempt where the table knows of the first alone', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    const again = { ...first, attempt: 1 };
    bench.queue = { tickets: [{ seq: 9, ticket: again, isTaken: true }], isWhole: true };
    await bench.looks(7);
    assert.deepEqual(bench.told, ['withdraw 9', 'train-00000000.1 overdue', '1 held']);
  });

  it('goes on warning of what the server does not let it take', async () => {
    const bench = new Bench();
    bench.isAllowed = false;
    bench.awaited = [first];
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    await bench.looks(8);
    assert.deepEqual(bench.told, ['withdraw 1', '1 held', 'withdraw 1', '1 held']);
  });

  it('calls nothing lost while part of the queue cannot be read', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    bench.queue = { tickets: [], isWhole: false };
    await bench.looks(10);
    assert.deepEqual(bench.told, []);
    bench.queue = { tickets: [], isWhole: true };
    await bench.looks(2);
    assert.deepEqual(bench.told, ['train-00000000 lost']);
    bench.awaited = [second];
    await bench.looks(1);
    bench.queue = { tickets: [], isWhole: false }; // it may have come back, and cannot be read
    await bench.looks(1);
    assert.deepEqual(bench.told.slice(1), []);
  });

  it('learns from each ticket that ended by itself how long tickets take, from no other', async () => {
    const bench = new Bench();
    const { holdTimes } = bench;
    for (let i = 0; i < 4; i += 1) {
      const ticket = { ticketId: `train-0000001${i}`, attempt: 0 };
      bench.watch.published(ticket);
      bench.awaited = [ticket];
      bench.queue = { tickets: [{ seq: 1, ticket, isTaken: true }], isWhole: true };
      await bench.looks(2);
      bench.awaited = [];
      assert.equal(holdTimes.median, undefined);
      await bench.looks(1);
    }
    assert.equal(holdTimes.median, 4);
    bench.awaited = [first];
    bench.watch.published(first);
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    await bench.looks(7);
    assert.deepEqual(bench.told.slice(1), ['train-00000000.0 overdue', '1 held']);
    bench.awaited = [];
    await bench.looks(2);
    assert.equal(holdTimes.median, 4);
  });
});
