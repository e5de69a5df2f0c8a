import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { nameToken, runNames, takesFrom } from '../../../shared/broker/names.js';

describe('the names of a run', () => {
  const names = runNames('night-3');

  it('the names of a run contain the run in every subject, stream and bucket', () => {
    assert.equal(names.subjects.tickets('train'), 'offbeat.night-3.tickets.train');
    assert.equal(names.subjects.scored('eval'), 'offbeat.night-3.scored.eval');
    assert.equal(names.subjects.rollouts('actor-0'), 'offbeat.night-3.rollouts.actor-0');
    assert.equal(names.streams.tickets, 'TICKETS_night-3');
    for (const name of [
      ...Object.values(names.streams),
      ...Object.values(names.buckets),
      ...Object.values(names.objects),
    ]) {
      assert.match(name, /_night-3$/);
    }
  });

  it("the names of a run give each queue a durable consumer whose filter matches the queue's subjects", () => {
    assert.deepEqual(names.consumer('tickets.eval'), {
      stream: 'TICKETS_night-3',
      durable: 'actors-eval',
      filter: names.subjects.tickets('eval'),
    });
    assert.equal(names.consumer('rollouts').filter, 'offbeat.night-3.rollouts.*');
  });

  for (const run of ['', 'a.b', 'a b', '-a', 'a'.repeat(49), 'ü']) {
    it(`the name ${JSON.stringify(run)} is refused as that of a run`, () => {
      assert.throws(() => runNames(run), { name: 'UserError', message: /use 1 to 48 letters/ });
    });
  }
});

describe('the queues of a stage', () => {
  const names = runNames('night-3');
  const takes = (stage: string, rest: string) => takesFrom(names, stage, `offbeat.night-3.${rest}`);

  it('a stage consumes messages from its own queues', () => {
    assert(takes('actor', 'tickets.train'));
    assert(takes('actor', 'tickets.eval'));
    assert(takes('reward', 'rollouts.pod=2E7'));
    assert(takes('learner', 'scored.train'));
    assert(takes('learner', 'scored.eval'));
  });

  it('a stage consumes no message from any other subject', () => {
    assert(!takes('actor', 'scored.train'));
    assert(!takes('actor', 'rollouts.actor-0'));
    assert(!takes('actor', 'tickets'));
    assert(!takes('actor', 'tickets.train.more'));
    assert(!takes('reward', 'rollouts.*'));
    assert(!takes('reward', 'rollouts.'));
    assert(!takes('reward', 'rollouts.a.b'));
    assert(!takes('learner', 'events.step'));
    assert(!takes('constructor', 'tickets.train'));
    assert(!takesFrom(names, 'actor', 'offbeat.night-4.tickets.train'));
    assert(!takesFrom(names, 'actor', '$KV.config_night-3.run'));
  });
});

describe('the token of a name', () => {
  it('the token of an ordinary name is the name itself', () => {
    assert.equal(nameToken('actor-0_B'), 'actor-0_B');
  });

  it('the token of any name is one token of a subject and of a key', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, unit: 'grapheme' }), (name) => {
        assert.match(nameToken(name), /^[A-Za-z0-9_=-]+$/);
      }),
    );
  });

  it('the tokens of different names differ', () => {
    const name = fc.string({
      minLength: 1,
      maxLength: 3,
      unit: fc.constantFrom('a', '.', '=', '2', 'E', '/', '_', 'é'),
    });
    fc.assert(
      fc.property(name, name, (a, b) => {
        assert.equal(nameToken(a) === nameToken(b), a === b);
      }),
    );
  });
});
