import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { Evaluator } from '../../learner/evaluator.js';
import { PermanentError } from '../../shared/errors.js';
import type { EvalResult } from '../../shared/wire/run-event.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { silent, until } from '../support/broker.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../support/messages.js';

describe('the evaluation of version 3 on two problems, two answers each', () => {
  const problems = ['p-0', 'p-1'].map((id) => ({ id, numbers: [1, 2], target: 3 }));
  let tickets: Ticket[];
  let evaluator: Evaluator;
  let stop: AbortController;
  let result: Promise<EvalResult>;

  beforeEach(async () => {
    tickets = [];
    stop = new AbortController();
    evaluator = new Evaluator({
      config: runConfig(),
      problems,
      samples: 2,
      newestVersion: () => 3,
      log: silent,
      publish: (ticket) => {
        tickets.push(ticket);
        return Promise.resolve();
      },
    });
    result = evaluator.run(3, stop.signal);
    result.catch(() => undefined);
    await until(() => tickets.length === 4);
  });

  it('asks for each problem at the training temperature and greedily, of exactly this version', () => {
    assert.deepEqual(
      tickets.map(({ problemId, groupSize, samplingParams, pinnedVersion, split }) => [
        ...[problemId, groupSize, samplingParams.temperature, pinnedVersion, split],
      ]),
      [
        ['p-0', 2, 1, 3, 'eval'],
        ['p-1', 2, 1, 3, 'eval'],
        ['p-0', 1, 0, 3, 'eval'],
        ['p-1', 1, 0, 3, 'eval'],
      ],
    );
    assert.equal(new Set(tickets.map(({ ticketId }) => ticketId)).size, 4);
    assert.equal(evaluator.pinnedVersion, 3);
  });

  it('gives the share of answers that are right, of each kind', async () => {
    const correct = [[true, false], [true, true], [false], [true]];
    tickets.forEach((ticket, i) => {
      evaluator.receive(answered(ticket, correct[i]!));
      evaluator.receive(answered(ticket, [])); // a second copy, and one of an old evaluation
      evaluator.receive(answered({ ...ticket, ticketId: 'eval-2-old-0' }, []));
    });
    assert.deepEqual(await result, { version: 3, problems: 2, sampled: 0.75, greedy: 0.5 });
    assert.equal(evaluator.pinnedVersion, undefined);
  });

  it('goes on without a ticket that died', async () => {
    evaluator.die(tickets[0]!.ticketId);
    for (const ticket of tickets.slice(1)) {
      evaluator.receive(answered(ticket, new Array<boolean>(ticket.groupSize).fill(true)));
    }
    assert.deepEqual(await result, { version: 3, problems: 2, sampled: 1, greedy: 1 });
  });

  it('refuses a group of another version, or about another problem', () => {
    const ticket = tickets[0]!;
    assert.throws(() => {
      evaluator.receive(answered(ticket, [true, true], 2));
    }, PermanentError);
    assert.throws(() => {
      evaluator.receive(answered({ ...ticket, problemId: 'p-1' }, [true, true]));
    }, PermanentError);
  });

  it('ends with the wish to stop', async () => {
    stop.abort();
    await assert.rejects(result, { name: 'AbortError' });
  });
});

function answered(ticket: Ticket, correct: boolean[], version = 3): ScoredGroup {
  const rollouts = correct.map(() => rollout(2, { versions: [[version, 2]] }));
  const group = rolloutGroup({ ticket, rollouts });
  const { scores } = scoredGroup({ group });
  return scoredGroup({
    group,
    scores: scores.map((score, i) => ({ ...score, isCorrect: correct[i]! })),
  });
}
