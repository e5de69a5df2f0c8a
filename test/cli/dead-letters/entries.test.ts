import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { entriesOf } from '../../../cli/dead-letters/text.js';
import type { DeadLetter } from '../../../shared/broker/dead-letters.js';
import { encode } from '../../../shared/wire/codec.js';
import { Ticket } from '../../../shared/wire/ticket.js';
import { ticket } from '../../support/messages.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const letterCount = 50;

describe('the entries of the dead letters', () => {
  it('no message of a dead letter is kept for its entry', async () => {
    const messages: WeakRef<Uint8Array>[] = [];
    const letter = (seq: number): DeadLetter => {
      const data = encode(Ticket, ticket({ ticketId: `train-0000000${seq % 10}` }));
      messages.push(new WeakRef(data));
      return {
        ...{ seq, stage: 'actor', reason: 'test', cause: { kind: 'other' }, subject: 's' },
        ...{ msgId: undefined, data, at: 0 },
      };
    };
    let mostKept = 0;
    async function* letters() {
      for (let seq = 1; seq <= letterCount; seq++) {
        await setImmediate(); // a weak reference holds its object until the end of its task
        collect();
        const kept = messages.filter((message) => message.deref() !== undefined).length;
        mostKept = Math.max(mostKept, kept);
        yield letter(seq);
      }
    }
    const facts = { consumedBelow: 3, consumedAbove: [], issuedBelow: 20 };
    const entries = await entriesOf(letters(), facts);
    assert.deepEqual(
      entries.slice(0, 3).map(({ number, ticketId, ticket: status }) => [number, ticketId, status]),
      [
        [1, 'train-00000001', 'ended'],
        [2, 'train-00000002', 'ended'],
        [3, 'train-00000003', 'open'],
      ],
    );
    assert(mostKept < letterCount / 2, `${mostKept} messages were kept`);
  });
});
