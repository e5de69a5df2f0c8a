import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encode as pack } from '@msgpack/msgpack';
import { ticketInside, watchDeadLetters } from '../../../shared/broker/dead-letter-watch.js';
import { encode } from '../../../shared/wire/codec.js';
import { ScoredGroup } from '../../../shared/wire/scored-group.js';
import { Ticket } from '../../../shared/wire/ticket.js';
import { rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';

describe('dead letters', () => {
  it('tell which ticket they were the end of, whatever kind of message it was', () => {
    const dead = ticket({ ticketId: 'train-00000007', attempt: 1 });
    const least = { ticketId: 'train-00000007', attempt: 1 };
    const expected = { ...least, order: 0, split: 'train' };
    assert.deepEqual(ticketInside(encode(Ticket, dead)), expected);
    const scored = scoredGroup({ group: rolloutGroup({ ticket: dead }) });
    assert.deepEqual(ticketInside(encode(ScoredGroup, scored)), expected);
    assert.deepEqual(
      ticketInside(pack({ ticket: { ...least, order: 'x', more: 1 }, broken: true })),
      { ...least, order: undefined },
    );
  });

  it('of bytes that mean nothing are passed over', async () => {
    const deaths: string[] = [];
    async function* letters() {
      for (const data of [Uint8Array.of(0xc1), pack({ other: 1 }), encode(Ticket, ticket())]) {
        yield await Promise.resolve({ data, stage: 'actor', reason: 'test' });
      }
    }
    await watchDeadLetters(letters(), ({ ticketId }, { stage, reason }) =>
      deaths.push(`${ticketId} ${stage}: ${reason}`),
    );
    assert.deepEqual(deaths, ['t-0 actor: test']);
  });
});
