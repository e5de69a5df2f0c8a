import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { publish } from '../../shared/broker/publish.js';
import { ticketBound } from '../../shared/rl/capacity.js';
import { encode } from '../../shared/wire/codec.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { orderName } from '../../shared/base/ticket-name.js';
import { messageIdOf, newTicketKey } from '../../shared/wire/ticket-ids.js';
import { checkpoint, ticket } from '../support/messages.js';
import { TrainingGround } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const orders = Array.from({ length: 40 }, (_, order) => order);

describe(
  'an actor that guesses the ids of tickets that it was not given',
  { timeout: 240_000 },
  () => {
    it('an actor that guesses ticket ids can neither have answers of others dropped nor their tickets counted as dead', async () => {
      await using ground = await TrainingGround.prepare('guessed');
      const { broker } = ground;
      const { subjects } = broker.names;
      const bound = ticketBound(1, 4);
      const learner = ground.learner({ 'max-steps': 4, 'tickets-ahead': bound });
      await until(async () => (await broker.depths()).tickets === bound);
      await ground.startScoring(); // it dead-letters the garbage and so frees space for more
      for (const order of orders) {
        for (const attempt of [0, 1]) {
          const guess = { ticketId: orderName(order), attempt };
          const msgId = messageIdOf(guess);
          const guessed = { subject: subjects.rollouts('guesser'), data: new Uint8Array(3), msgId };
          await publish(broker.link, broker, guessed, AbortSignal.timeout(60_000));
          const death = encode(Ticket, ticket({ ...guess, order }));
          await broker.link.js.publish(subjects.dead('actor', 'guesser'), death);
        }
      }
      ground.actor('actor-0');

      assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
      const { groups, steps } = Summary.parse(await ground.summary());
      assert.deepEqual([steps, groups.trained, groups.dead], [4, 16, 0]);
      assert.equal((await ground.metrics()).at(-1)!['dropped/learner/lost'], undefined);
    });
  },
);

describe('a run that was begun before tickets had a key', { timeout: 60_000 }, () => {
  it('a run from before ticket keys keeps the ids of outstanding tickets and keys the following ones', async () => {
    await using ground = await TrainingGround.prepare('unkeyed');
    const { broker } = ground;
    await broker.ensureRun({ trainTickets: 8, evalTickets: 1 });
    await broker.ledger.write(checkpoint({ nextOrder: 12 }));
    assert.equal(await broker.ledger.ticketIds(), undefined);
    const ids = await broker.ledger.settleTicketIds(newTicketKey(12));
    assert.equal(ids.of(11, 0), orderName(11));
    assert.match(ids.of(12, 0), /^train-00000012-[0-9a-f]{16}$/);
    const again = await broker.ledger.settleTicketIds(newTicketKey(20)); // the next learner, after more checkpoints
    assert.equal(again.of(12, 0), ids.of(12, 0));
  });
});
