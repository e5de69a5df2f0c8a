import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { TokenAccount } from '../../../learner/cost/token-account.js';

const group = (sampled: number) => ({ sampled, prompt: 3, rollouts: 2 });

/** What may happen to a learner, in any order; numbers choose among the messages of the queue. */
const move = fc.oneof(
  fc.record({ kind: fc.constant('send' as const), tokens: fc.integer({ min: 1, max: 90 }) }),
  fc.record({
    kind: fc.constantFrom('deliver', 'train', 'waste', 'discard'),
    pick: fc.nat(20),
    reason: fc.constantFrom('stale', 'duplicate', 'zero_variance'),
  }),
  fc.record({ kind: fc.constantFrom('checkpoint', 'crash'), acknowledged: fc.nat(1) }),
);

describe('the account of tokens', () => {
  it('every token received is trained on, wasted for one reason or in flight, after any crashes', () => {
    fc.assert(
      fc.property(fc.array(move, { maxLength: 80, size: 'max' }), (moves) => {
        const queue = new Map<number, number>(); // messages not settled: number and tokens
        const ends = new Map<number, string>(); // this session's, by message
        let delivered = new Set<number>();
        let gone = 0; // tokens of messages that a checkpoint covers, or that were settled at once
        let covered = new Set<number>();
        let saved: ConstructorParameters<typeof TokenAccount>[0];
        let account = new TokenAccount();
        let lost = 0; // tokens discarded since the checkpoint: a crash forgets them
        let seq = 0;
        for (const each of moves) {
          if (each.kind === 'send') queue.set(++seq, 'tokens' in each ? each.tokens : 0);
          else if ('pick' in each) {
            const open = [...queue.keys()].filter((id) =>
              each.kind === 'deliver' ? !delivered.has(id) : delivered.has(id) && !ends.has(id),
            );
            const id = open[each.pick % Math.max(1, open.length)];
            if (id === undefined || (each.kind !== 'deliver' && covered.has(id))) continue;
            if (each.kind === 'deliver') {
              delivered.add(id);
              account.receive(id, group(queue.get(id)!));
              if (covered.has(id)) ends.set(id, 'counted');
            } else if (each.kind === 'train') {
              account.train(id);
              ends.set(id, 'trained');
            } else if (each.kind === 'waste') {
              account.waste(id, each.reason);
              ends.set(id, each.reason);
            } else {
              account.discard(id, each.reason);
              lost += queue.get(id)!;
              queue.delete(id);
              delivered.delete(id);
            }
          } else if ('acknowledged' in each && each.kind === 'checkpoint') {
            const ended = [...ends.keys()].filter((id) => queue.has(id));
            const { settle, ...counts } = account.capture(ended);
            saved = counts;
            settle();
            for (const id of ended) if (!covered.has(id)) gone += queue.get(id)!;
            gone += lost;
            lost = 0;
            covered = new Set([...covered, ...ended]);
            for (const id of ended.slice(0, each.acknowledged)) queue.delete(id);
          } else {
            account = new TokenAccount(saved);
            lost = 0;
            delivered = new Set();
            ends.clear();
          }
          const open = [...delivered].filter((id) => queue.has(id) && !covered.has(id));
          const live = open.reduce((sum, id) => sum + queue.get(id)!, 0);
          const { trained, wasted } = account.totals;
          const ended = Object.values(wasted).reduce((sum, tokens) => sum + tokens, trained);
          assert.equal(ended + account.inFlight, gone + lost + live);
        }
      }),
      { numRuns: 400 },
    );
  });

  it('the account counts prompts once a group, and once a rollout that is trained on', () => {
    const account = new TokenAccount();
    account.receive(1, group(10));
    account.receive(2, group(20));
    account.receive(3, group(40));
    account.train(1);
    account.waste(2, 'stale');
    account.waste(2, 'duplicate'); // the first reason counts
    account.mask(4);
    assert.deepEqual(account.totals, {
      trained: 10,
      masked: 4,
      wasted: { stale: 20 },
      prompts: { sampled: 6, trained: 6 },
    });
    assert.equal(account.inFlight, 40);
  });

  it('a message number that the server uses again does not hide the tokens of the lost message', () => {
    const account = new TokenAccount();
    account.receive(1, group(10));
    account.receive(1, group(20));
    assert.deepEqual(account.totals.wasted, { lost: 10 });
    assert.equal(account.inFlight, 20);
  });
});
