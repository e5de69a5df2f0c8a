import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encode as pack } from '@msgpack/msgpack';
import { ticketOf, watchDeadLetters } from '../../../shared/broker/dead-letter-watch.js';
import { encode } from '../../../shared/wire/codec.js';
import { ScoredGroup } from '../../../shared/wire/scored-group.js';
import { Ticket } from '../../../shared/wire/ticket.js';
import { rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';

describe('dead letters', () => {
  const of = { ticketId: 'train-00000007', attempt: 1 };

  it('a dead letter names the ticket that it ended, whatever kind of message died', () => {
    const dead = ticket(of);
    const scored = scoredGroup({ group: rolloutGroup({ ticket: dead }) });
    for (const data of [
      encode(Ticket, dead),
      encode(ScoredGroup, scored),
      pack({ ticket: { ...of, order: 'x', more: 1 }, broken: true }),
    ]) {
      assert.deepEqual(ticketOf({ data, msgId: undefined }), of);
    }
  });

  it('a dead letter without the message names its ticket by the id that it was published under', () => {
    const nothing = new Uint8Array();
    assert.deepEqual(ticketOf({ data: nothing, msgId: 'train-00000007.1' }), of);
    assert.equal(ticketOf({ data: nothing, msgId: 'again-12' }), undefined);
    assert.deepEqual(ticketOf({ data: encode(Ticket, ticket(of)), msgId: 'train-00000008.0' }), of);
  });

  it('a dead letter of unreadable bytes is skipped', async () => {
    const deaths: string[] = [];
    async function* letters() {
      for (const data of [Uint8Array.of(0xc1), pack({ other: 1 }), encode(Ticket, ticket())]) {
        const of = {
          msgId: undefined,
          stage: 'actor',
          reason: 'test',
          cause: { kind: 'other' },
        } as const;
        yield await Promise.resolve({ data, ...of });
      }
    }
    await watchDeadLetters(letters(), ({ ticketId }, { stage, reason }) =>
      deaths.push(`${ticketId} ${stage}: ${reason}`),
    );
    assert.deepEqual(deaths, ['t-0 actor: test']);
  });
});
