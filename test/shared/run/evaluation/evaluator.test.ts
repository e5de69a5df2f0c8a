import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { PermanentError } from '../../../../shared/base/errors.js';
import { evaluationTickets, Evaluator } from '../../../../shared/run/evaluation/evaluator.js';
import type { EvalResult } from '../../../../shared/wire/eval-result.js';
import type { ScoredGroup } from '../../../../shared/wire/scored-group.js';
import type { Ticket } from '../../../../shared/wire/ticket.js';
import { silent } from '../../../support/log.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../../../support/messages.js';
import { until } from '../../../support/waiting.js';

describe('the evaluation of version 3 on two problems, two answers each', () => {
  const problems = [
    { id: 'p-0', difficulty: '3 numbers' },
    { id: 'p-1', difficulty: '4 numbers' },
  ];
  let tickets: Ticket[];
  let newest: number;
  let evaluator: Evaluator;
  let stop: AbortController;
  let result: Promise<EvalResult>;

  beforeEach(async () => {
    tickets = [];
    newest = 3;
    stop = new AbortController();
    evaluator = new Evaluator({
      config: runConfig(),
      problems,
      samples: 2,
      newestVersion: () => newest,
      isQuarantined: (actor) => actor === 'tamperer',
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

  it('an evaluation asks for each problem at the training temperature and greedily, of exactly this version', () => {
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
  });

  it('an evaluation reports the rates, the answers to each problem and the progress of training meanwhile', async () => {
    const correct = [[true, false], [true, true], [false], [true]];
    newest = 8;
    tickets.forEach((ticket, i) => {
      evaluator.receive(answered(ticket, correct[i]!));
      evaluator.receive(answered(ticket, [])); // a second copy, and one of an old evaluation
      evaluator.receive(answered({ ...ticket, ticketId: 'eval-2-old-0' }, []));
    });
    const { version, lag, lost, sampled, greedy, passAt, answers } = await result;
    assert.deepEqual({ version, lag, lost }, { version: 3, lag: 5, lost: 0 });
    assert.deepEqual(
      { sampled, greedy, passAt },
      { sampled: 0.75, greedy: 0.5, passAt: { 1: 0.75, 2: 1 } },
    );
    assert.deepEqual(answers, {
      sampled: { correct: [1, 2], total: [2, 2] },
      greedy: { correct: [0, 1], total: [1, 1] },
    });
  });

  it('an evaluation continues without a dead ticket', async () => {
    evaluator.recordDeath(tickets[0]!.ticketId, 'reward: no such problem');
    for (const ticket of tickets.slice(1)) {
      evaluator.receive(answered(ticket, new Array<boolean>(ticket.groupSize).fill(true)));
    }
    const { problems, sampled, greedy, lost, answers } = await result;
    assert.deepEqual(
      { problems, sampled, greedy, lost },
      { problems: 2, sampled: 1, greedy: 1, lost: 1 },
    );
    assert.deepEqual(answers.sampled, { correct: [0, 2], total: [0, 2] });
  });

  it('an evaluation fails with the causes when every ticket dies, and another can be started', async () => {
    for (const { ticketId, order } of tickets) {
      evaluator.recordDeath(ticketId, order < 3 ? 'reward: no such problem' : 'actor: \x1b[2J');
    }
    await assert.rejects(result, {
      name: 'UserError',
      message:
        'the evaluation of version 3 failed: all of its sampled or all of its greedy tickets died, 4 of 4:\n' +
        '  - reward: no such problem\n' +
        '  - actor: \\u001b[2J',
    });
    evaluator.run(4, stop.signal).catch(() => undefined);
    await until(() => tickets.length === 8);
    assert.equal(tickets.at(-1)!.pinnedVersion, 4);
  });

  it('every evaluation samples with the same seeds', async () => {
    for (const { ticketId } of tickets) evaluator.recordDeath(ticketId, 'test');
    await result.catch(() => undefined);
    evaluator.run(4, stop.signal).catch(() => undefined);
    await until(() => tickets.length === 8);
    const seeds = tickets.map(({ samplingParams }) => samplingParams.seed);
    assert.deepEqual(seeds.slice(0, 4), seeds.slice(4));
    assert.equal(new Set(seeds).size, 4);
  });

  it('an evaluation refuses a group of another version', () => {
    const ticket = tickets[0]!;
    assert.throws(() => {
      evaluator.receive(answered(ticket, [true, true], 2));
    }, PermanentError);
  });

  const altered: [field: string, over: Partial<Ticket>][] = [
    ['order', { order: 9 }],
    ['problemId', { problemId: 'p-1' }],
    ['split', { split: 'train' }],
    ['groupSize', { groupSize: 4 }],
    ['issuedAtVersion', { issuedAtVersion: 2 }],
    ['pinnedVersion', { pinnedVersion: undefined }],
    ['attempt', { attempt: 1 }],
    ...(['temperature', 'maxTokens', 'seed'] as const).map((field): [string, Partial<Ticket>] => [
      `samplingParams.${field}`,
      { samplingParams: { temperature: 1, maxTokens: 16, seed: 1, [field]: 0.5 } },
    ]),
  ];
  for (const [field, over] of altered) {
    it(`an evaluation refuses an answer to the ticket with another ${field} and finishes without it`, async () => {
      const [first, ...others] = tickets;
      const lie = { ...first!, ...over };
      const correct = new Array<boolean>(lie.groupSize).fill(true);
      assert.throws(
        () => {
          evaluator.receive(answered(lie, correct));
        },
        (error: unknown) => {
          assert(error instanceof PermanentError);
          assert.equal(error.message, `${first!.ticketId} was issued with other ${field}`);
          return true;
        },
      );
      await endsWithout(first!, others);
    });
  }

  it('an evaluation ignores the answers of a quarantined actor and finishes without them', async () => {
    const [first, ...others] = tickets;
    const answer = answered(first!, [true, true]);
    assert.throws(() => {
      evaluator.receive({ ...answer, group: { ...answer.group, actor: 'tamperer' } });
    }, /PermanentError: .* is answered by tamperer, which is quarantined/);
    await endsWithout(first!, others);
  });

  /** The refused answer is a dead letter now, of which the evaluator is told. */
  async function endsWithout({ ticketId }: Ticket, others: readonly Ticket[]): Promise<void> {
    assert.deepEqual(evaluator.tickets, { issued: 4, open: 4 });
    evaluator.recordDeath(ticketId, 'test');
    for (const ticket of others) {
      evaluator.receive(answered(ticket, new Array<boolean>(ticket.groupSize).fill(false)));
    }
    const { lost, sampled, answers } = await result;
    assert.deepEqual({ lost, sampled }, { lost: 1, sampled: 0 });
    assert.deepEqual(answers.sampled.total, [0, 2]);
  }

  it('an evaluation asks for many answers in groups that are no larger than those of training', async () => {
    const asked: Ticket[] = [];
    const many = new Evaluator({
      config: runConfig({ groupSize: 4 }),
      problems,
      samples: 9,
      newestVersion: () => 0,
      isQuarantined: () => false,
      log: silent,
      publish: (ticket) => Promise.resolve(void asked.push(ticket)),
    });
    const measured = many.run(0, stop.signal);
    await until(() => asked.length === 8);
    const sizes = asked.map(({ problemId, groupSize }) => [problemId, groupSize]);
    assert.deepEqual(
      sizes.filter(([problem]) => problem === 'p-1'),
      [4, 4, 1, 1].map((size) => ['p-1', size]), // the last one greedily
    );
    assert.equal(new Set(asked.map(({ samplingParams: { seed } }) => seed)).size, 8);
    assert.deepEqual(many.tickets, { issued: evaluationTickets(2, 9, 4), open: 8 });
    for (const ticket of asked) {
      const correct = new Array<boolean>(ticket.groupSize).fill(ticket.order === 0);
      many.receive(answered(ticket, correct, 0));
    }
    const { answers } = await measured;
    assert.deepEqual(answers.sampled, { correct: [4, 0], total: [9, 9] });
  });

  it('evaluations run one at a time', async () => {
    await assert.rejects(evaluator.run(4, stop.signal), /version 3 is still being evaluated/);
  });

  it('an evaluation ends when its signal aborts', async () => {
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
