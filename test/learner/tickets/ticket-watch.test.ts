import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HoldTimes } from '../../../learner/tickets/hold-times.js';
import { TicketWatch } from '../../../learner/tickets/ticket-watch.js';
import type { TicketQueueState } from '../../../shared/broker/ticket-queue.js';
import type { Attempt } from '../../../shared/wire/ticket-ids.js';
import { createRandom } from '../../../shared/base/random.js';
import { FlowModel } from '../support/flow-model.js';

describe('the ticket watch in a simulated fleet', () => {
  it('the ticket watch finds every lost ticket and no other, whatever happens between its queries', async () => {
    let [lost, overdue, held] = [0, 0, 0];
    for (let seed = 0; seed < 200; seed += 1) {
      const model = new FlowModel(createRandom(`flow ${seed}`));
      for (let i = 0; i < 200; i += 1) {
        await model.move();
        const wrong = model.found.filter((id) => !model.lost.has(id));
        assert.deepEqual(wrong, [], `history ${seed}, move ${i}`);
      }
      await model.settle();
      const unanswered = model.awaited.filter((id) => !model.heldLong.includes(id));
      assert.deepEqual(unanswered, [], `history ${seed} waits for lost tickets`);
      assert.deepEqual(model.found.toSorted(), [...model.lost].toSorted(), `history ${seed}`);
      lost += model.lost.size;
      overdue += model.overdue.length;
      held += model.heldLong.length;
    }
    assert(lost > 200, `${lost} were lost in total`);
    assert(overdue > 50 && held > 50, `${overdue} were overdue, ${held} held by reward services`);
  });
});

/** A watch whose clock and queue the test moves by hand. */
class Bench {
  awaited: Attempt[] = [];
  finished: Attempt[] = [];
  queue: TicketQueueState = { tickets: [], isWhole: true };
  seconds = 0;
  hasActors = true;
  canWithdraw = true;
  readonly events: string[] = [];

  readonly watch: TicketWatch;

  constructor(readonly holdTimes = new HoldTimes({ fixedSeconds: 10, leaseSeconds: 1 })) {
    this.watch = new TicketWatch({
      awaited: () => this.awaited,
      isFinished: (ticket) => this.finished.some(({ ticketId }) => ticketId === ticket.ticketId),
      poll: () => Promise.resolve(this.queue),
      pass: () => ({ isOver: () => Promise.resolve(true), heldLong: [] }),
      withdraw: (seq) => {
        this.events.push(`withdraw ${seq}`);
        return Promise.resolve(this.canWithdraw);
      },
      isAnyoneThere: () => this.hasActors,
      holdTimes,
      now: () => this.seconds,
      onLost: ({ ticketId }) => this.events.push(`${ticketId} lost`),
      onOverdue: ({ ticketId, attempt }) => this.events.push(`${ticketId}.${attempt} overdue`),
      onHeld: ({ tickets }) => this.events.push(`${tickets} held`),
    });
  }

  async poll(count: number, everySeconds = 2): Promise<void> {
    for (let i = 0; i < count; i += 1) {
      this.seconds += everySeconds;
      await this.watch.poll();
    }
  }
}

const first = { ticketId: 'train-00000000', attempt: 0 };
const second = { ticketId: 'train-00000001', attempt: 0 };
const firstTaken: TicketQueueState = {
  tickets: [
    { seq: 1, ticket: first, isTaken: true },
    { seq: 2, ticket: second, isTaken: false },
  ],
  isWhole: true,
};

describe('the ticket watch with a limit of ten seconds', () => {
  it('the hold time of a ticket starts when an actor takes it, however long it waited before', async () => {
    const bench = new Bench();
    bench.awaited = [first, second];
    bench.queue = firstTaken;
    await bench.poll(6);
    assert.deepEqual(bench.events, []);
    await bench.poll(1);
    assert.deepEqual(bench.events, ['withdraw 1', 'train-00000000.0 overdue', '1 held']);
  });

  it('a ticket that an actor keeps in the queue is withdrawn though it needs no answer any more', async () => {
    const bench = new Bench();
    bench.awaited = [second];
    bench.finished = [first];
    bench.queue = firstTaken;
    await bench.poll(1);
    bench.awaited = []; // as when it fills the queue, so that no other ticket can be published
    await bench.poll(5);
    assert.deepEqual(bench.events, []);
    await bench.poll(1);
    assert.deepEqual(bench.events, ['withdraw 1']);
  });

  it('a ticket in the queue that may still be issued again is left there', async () => {
    const bench = new Bench();
    bench.awaited = [second];
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    await bench.poll(20);
    assert(!bench.events.includes('withdraw 1'), bench.events.join());
  });

  it('hold time does not grow while no actor is live, or while the learner itself stalls', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    bench.hasActors = false;
    await bench.poll(100);
    bench.hasActors = true;
    await bench.poll(2, 3_600);
    assert.deepEqual(bench.events, []);
    await bench.poll(1);
    assert.deepEqual(bench.events, []);
    await bench.poll(1);
    assert.equal(bench.events.length, 3);
  });

  it('the ticket watch withdraws a second attempt even if the table knows only the first', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    const again = { ...first, attempt: 1 };
    bench.queue = { tickets: [{ seq: 9, ticket: again, isTaken: true }], isWhole: true };
    await bench.poll(7);
    assert.deepEqual(bench.events, ['withdraw 9', 'train-00000000.1 overdue', '1 held']);
  });

  it('the ticket watch keeps warning about a ticket that it cannot withdraw', async () => {
    const bench = new Bench();
    bench.canWithdraw = false;
    bench.awaited = [first];
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    await bench.poll(8);
    assert.deepEqual(bench.events, ['withdraw 1', '1 held', 'withdraw 1', '1 held']);
  });

  it('the ticket watch reports no ticket as lost while part of the queue is unreadable', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    bench.queue = { tickets: [], isWhole: false };
    await bench.poll(10);
    assert.deepEqual(bench.events, []);
    bench.queue = { tickets: [], isWhole: true };
    await bench.poll(2);
    assert.deepEqual(bench.events, ['train-00000000 lost']);
    bench.awaited = [second];
    await bench.poll(1);
    bench.queue = { tickets: [], isWhole: false }; // the ticket may be back, unreadable
    await bench.poll(1);
    assert.deepEqual(bench.events.slice(1), []);
  });

  it('a ticket that was found again must be missed at two polls more before it is lost', async () => {
    const bench = new Bench();
    bench.awaited = [first];
    bench.queue = { tickets: [], isWhole: true };
    await bench.poll(1);
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: false }], isWhole: true };
    await bench.poll(1);
    bench.queue = { tickets: [], isWhole: true }; // an actor has answered it
    await bench.poll(1);
    assert.deepEqual(bench.events, []);
    await bench.poll(1);
    assert.deepEqual(bench.events, ['train-00000000 lost']);
  });

  it('hold times are recorded only of answered tickets, and by the id of the message', async () => {
    const bench = new Bench();
    const { holdTimes } = bench;
    for (let i = 0; i < 4; i += 1) {
      const ticket = { ticketId: `train-0000001${i}`, attempt: 0 };
      bench.watch.published(ticket);
      bench.awaited = [ticket];
      bench.queue = { tickets: [{ seq: 1, ticket, isTaken: true }], isWhole: true };
      await bench.poll(2);
      bench.watch.answered({ ...ticket, ticketId: `${ticket.ticketId}-0123456789abcdef` }, 'liar');
      bench.watch.answered(ticket, 'actor-0');
      bench.awaited = [];
      assert.equal(holdTimes.median, undefined);
      await bench.poll(1);
    }
    bench.watch.published(second);
    bench.awaited = [second];
    await bench.poll(1);
    bench.awaited = []; // it died
    await bench.poll(1);
    assert.equal(holdTimes.median, 4);
    bench.awaited = [first];
    bench.watch.published(first);
    bench.queue = { tickets: [{ seq: 1, ticket: first, isTaken: true }], isWhole: true };
    await bench.poll(7);
    assert.deepEqual(bench.events.slice(1), ['train-00000000.0 overdue', '1 held']);
    bench.awaited = [];
    await bench.poll(2);
    assert.equal(holdTimes.median, 4);
  });

  it('a slow actor may answer beside one that finishes every ticket at once', async () => {
    const bench = new Bench(new HoldTimes({ leaseSeconds: 30 }));
    let issued = 0;
    const issue = () => {
      const ticket = { ticketId: `train-${String(issued++).padStart(8, '0')}`, attempt: 0 };
      bench.watch.published(ticket);
      return ticket;
    };
    let inTime = 0;
    for (let i = 0; i < 20; i += 1) {
      const slow = issue();
      for (let seconds = 0; seconds < 100; seconds += 2) {
        const fast = issue();
        const isOut = !bench.events.includes(`${slow.ticketId}.0 overdue`);
        bench.awaited = isOut ? [slow, fast] : [fast];
        bench.queue = {
          tickets: bench.awaited.map((ticket, seq) => ({ seq, ticket, isTaken: true })),
          isWhole: true,
        };
        await bench.poll(1);
        bench.watch.answered(fast, 'fast');
      }
      bench.watch.answered(slow, 'slow');
      inTime += Number(!bench.events.includes(`${slow.ticketId}.0 overdue`));
    }
    assert(inTime >= 18, `${inTime} of 20 answers were in time`);
  });
});
