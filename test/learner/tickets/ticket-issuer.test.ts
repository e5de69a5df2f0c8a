import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { Admission } from '../../../learner/groups/admission.js';
import { issueTickets, JustInTime } from '../../../learner/tickets/ticket-issuer.js';
import { TicketSource } from '../../../learner/tickets/ticket-source.js';
import { Changes } from '../../../shared/base/changes.js';
import type { TicketDemand } from '../../../shared/rl/capacity.js';
import type { Ticket } from '../../../shared/wire/ticket.js';
import { newTicketKey, TicketIds } from '../../../shared/wire/ticket-ids.js';
import { limits } from '../support/crash-parts.js';
import { runConfig } from '../../support/messages.js';
import { never } from '../../support/waiting.js';

describe('the pace of tickets with two ahead', () => {
  let demand: TicketDemand | undefined;
  let reads: number;
  let pauses: number;
  let pace: JustInTime;
  beforeEach(() => {
    demand = { undelivered: 0, requests: 0 };
    [reads, pauses] = [0, 0];
    pace = new JustInTime({
      ahead: 2,
      read: () => {
        reads += 1;
        return Promise.resolve(demand);
      },
      pause: () => {
        pauses += 1;
        return Promise.resolve();
      },
    });
  });

  it('the pace wants as many tickets as one read of the queue has shown, and then reads again', async () => {
    demand = { undelivered: 1, requests: 2 };
    assert.deepEqual(await wants(3), [true, true, true]);
    assert.equal(reads, 1);
    demand = { undelivered: 2, requests: 0 };
    assert.deepEqual(await wants(2), [false, false]);
    assert.deepEqual([reads, pauses], [3, 2]);
  });

  it('the pace forgets what actors wanted while no ticket could be issued', async () => {
    demand = { undelivered: 0, requests: 5 };
    await wants(1);
    demand = { undelivered: 4, requests: 0 };
    pace.reset();
    assert.deepEqual(await wants(1), [false]);
  });

  it('the pace leaves the decision to the capacity law while the queue cannot be read', async () => {
    demand = undefined;
    assert.deepEqual(await wants(3), [true, true, true]);
    assert.equal(pauses, 0);
  });

  async function wants(times: number): Promise<boolean[]> {
    const answers: boolean[] = [];
    for (let i = 0; i < times; i++) answers.push(await pace.isWanted(never));
    return answers;
  }
});

describe('tickets that are issued just in time', () => {
  it('a ticket that is held back reserves no place, and names the version of its issue', async () => {
    const config = runConfig({ groupSize: 2, sampling: { temperature: 1, maxTokens: 4 } });
    const ids = new TicketIds(newTicketKey());
    const tickets = new TicketSource(config, ['p'], { margin: 1, state: undefined, ids });
    const admission = new Admission<string>(limits, { step: 0, version: 0 });
    const issued: Ticket[] = [];
    let offers = 0;
    const offer = admission.offer.bind(admission);
    admission.offer = () => {
      offers += 1;
      return offer();
    };
    const demand = { undelivered: 0, requests: 2 };
    const stop = new AbortController();
    let onPause: () => void = () => undefined;
    const pace = new JustInTime({
      ahead: 1,
      read: () => Promise.resolve(demand),
      pause: () =>
        new Promise<void>((resolve) => {
          onPause();
          stop.signal.addEventListener('abort', () => {
            resolve();
          });
          release = resolve;
        }),
    });
    let release: () => void = () => undefined;
    const held = () =>
      new Promise<void>((resolve) => {
        onPause = resolve;
      });
    let isHeld = held();
    const issuing = issueTickets(
      {
        ...{ admission, tickets, pace, changes: new Changes() },
        receiver: { isAnswered: () => false, claim: () => undefined },
        publish: (ticket) => {
          issued.push(ticket);
          demand.undelivered += 1;
          return Promise.resolve();
        },
        onReplaced: () => undefined,
      },
      stop.signal,
    );
    await isHeld;
    assert.deepEqual([issued.length, admission.samplable], [3, 6]); // the law allows three more
    assert.equal(offers, 3); // the window would keep the place of another

    Object.assign(demand, { undelivered: 1, requests: 0 }); // two were taken
    admission.arrive(0, 'first', [0]);
    admission.arrive(1, 'second', [0]);
    assert.deepEqual(admission.cut()?.orders, [0, 1]); // no place is kept for a ticket that was not issued
    admission.confirmStep();
    admission.recordPublished(1);

    demand.requests = 1;
    isHeld = held();
    release();
    await isHeld;
    assert.deepEqual(
      issued.map(({ order, issuedAtVersion }) => [order, issuedAtVersion]),
      [
        [0, 0],
        [1, 0],
        [2, 0],
        [3, 1],
      ],
    );
    stop.abort();
    await issuing;
  });
});
