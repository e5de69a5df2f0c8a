import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { describe, it } from 'node:test';
import { EarlyCancel, GroupStale, TicketEnded } from '../../actor/early-cancel.js';
import { ticket } from '../support/messages.js';
import { never } from '../support/waiting.js';

const fifth = ticket({ order: 5 });

describe('work on a ticket, when a version is published', () => {
  it('work on a ticket is abandoned once the version of its oldest token is too old to be trained on', () => {
    const cancel = new EarlyCancel();
    using work = cancel.watch(fifth, never);
    work.onDraw(3);
    work.onDraw(4); // adopted in flight: the group's oldest token is still of version 3
    cancel.published({ version: 9, smallestUsefulVersion: 3 });
    assert(!work.signal.aborted);
    cancel.published({ version: 9, smallestUsefulVersion: 4 });
    const reason: unknown = work.signal.reason;
    assert(reason instanceof GroupStale);
    assert.deepEqual(reason.deathCause, { kind: 'outdated' });
  });

  it('work on a ticket ends with the process, for the same reason, and leaves nothing on the signal of the process', () => {
    const cancel = new EarlyCancel();
    const process = new AbortController();
    const late = cancel.watch(fifth, process.signal);
    {
      using _done = cancel.watch(fifth, process.signal);
      assert.equal(getEventListeners(process.signal, 'abort').length, 2);
    }
    assert.equal(getEventListeners(process.signal, 'abort').length, 1);
    const reason = new Error('the process ends');
    process.abort(reason);
    assert.equal(late.signal.reason, reason);
    assert.equal(cancel.watch(fifth, process.signal).signal.reason, reason); // one that comes later still
  });

  it('work on a ticket continues as long as its newest token may be trained on, where the bound holds for tokens', () => {
    const cancel = new EarlyCancel('newest');
    using work = cancel.watch(fifth, never);
    work.onDraw(3);
    cancel.published({ version: 4, smallestUsefulVersion: 2 });
    work.onDraw(4); // adopted in flight
    cancel.published({ version: 6, smallestUsefulVersion: 4 });
    assert(!work.signal.aborted);
    cancel.published({ version: 7, smallestUsefulVersion: 5 });
    const reason: unknown = work.signal.reason;
    assert(reason instanceof GroupStale);
    assert.match(reason.message, /its newest token is of version 4, and only 5 or newer/);
  });

  it('work on a ticket continues while no token is drawn, because the newest version will draw them all', () => {
    const cancel = new EarlyCancel();
    using work = cancel.watch(fifth, never);
    cancel.published({ version: 9, smallestUsefulVersion: 9 });
    assert(!work.signal.aborted);
    work.onDraw(9);
    assert(!work.signal.aborted);
  });

  it('work on a ticket continues when the call for its first tokens has failed, because a newer version will draw them', () => {
    for (const by of ['oldest', 'newest'] as const) {
      const cancel = new EarlyCancel(by);
      using work = cancel.watch(fifth, never);
      work.onDraw(3);
      work.noneDrawn();
      cancel.published({ version: 9, smallestUsefulVersion: 9 });
      assert(!work.signal.aborted);
      work.onDraw(9);
      cancel.published({ version: 10, smallestUsefulVersion: 10 });
      assert(work.signal.reason instanceof GroupStale);
    }
  });

  it('work on a ticket is abandoned when it starts with a version that is already too old', () => {
    const cancel = new EarlyCancel();
    using work = cancel.watch(fifth, never);
    cancel.published({ version: 9, smallestUsefulVersion: 9 });
    work.onDraw(8); // the newest that could be loaded so far
    assert(work.signal.aborted);
  });

  it('work on a ticket is abandoned when the ticket has ended because another copy of it was answered', () => {
    const cancel = new EarlyCancel();
    using work = cancel.watch(fifth, never);
    cancel.published({ version: 9, smallestUsefulVersion: 0, consumedBelow: 5 });
    assert(!work.signal.aborted);
    cancel.published({ version: 9, smallestUsefulVersion: 0, consumedBelow: 6 });
    assert(work.signal.reason instanceof TicketEnded);
  });

  it('work on a ticket is not started when the ticket is already known to have ended', () => {
    const cancel = new EarlyCancel();
    cancel.published({ version: 9, smallestUsefulVersion: 0, consumedBelow: 6 });
    using work = cancel.watch(fifth, never);
    assert(work.signal.reason instanceof TicketEnded);
  });

  it('work on a ticket continues when a restored learner issued the ticket after the news of its end', () => {
    const cancel = new EarlyCancel();
    cancel.published({ version: 8, smallestUsefulVersion: 0, consumedBelow: 6 });
    using work = cancel.watch(ticket({ order: 5, issuedAtVersion: 9 }), never);
    assert(!work.signal.aborted);
    cancel.published({ version: 9, smallestUsefulVersion: 0, consumedBelow: 4 });
    assert(!work.signal.aborted);
    cancel.published({ version: 10, smallestUsefulVersion: 0, consumedBelow: 6 });
    assert(work.signal.reason instanceof TicketEnded);
  });

  it('work on a held-out problem continues whatever is published', () => {
    const cancel = new EarlyCancel();
    using work = cancel.watch(ticket({ split: 'eval', order: 0 }), never);
    work.onDraw(0);
    cancel.published({ version: 9, smallestUsefulVersion: 9, consumedBelow: 9 });
    assert(!work.signal.aborted);
  });

  it('work on a ticket ends with the process', () => {
    const stop = new AbortController();
    using work = new EarlyCancel().watch(fifth, stop.signal);
    stop.abort();
    assert.equal(work.signal.reason, stop.signal.reason);
  });
});
