import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { answers } from '../reward-service/values.js';
import {
  firstOrders,
  hasJoined,
  ScoringGround,
  type ScoringRun,
} from '../support/scoring-ground.js';
import type { ServiceProcess } from '../support/service-process.js';
import { until } from '../support/waiting.js';

describe('reward services as processes on a real server', { timeout: 120_000 }, () => {
  let ground: ScoringGround;
  let run: ScoringRun;

  before(async () => {
    ground = await ScoringGround.prepare();
  });
  after(() => ground[Symbol.asyncDispose]());
  beforeEach(async () => {
    run = await ground.begin();
  });
  afterEach(() => run[Symbol.asyncDispose]());

  const waiting = async () => (await run.broker.depths()).rollouts;

  it('reward services share the groups of a run and score each once', async () => {
    await run.join('reward-0', 'reward-1');
    const scorers = () => new Set(run.scored.map(({ scorer }) => scorer));
    let count = 0;
    await until(async () => {
      await run.send(count++);
      return scorers().size === 2;
    });
    await until(() => run.scored.length >= count);
    assert.deepEqual(run.orders, firstOrders(count));
    for (const { scores, group } of run.scored) {
      assert.equal(scores[0]!.exactReward, '1', group.ticket.problemId);
      assert.equal(scores.length, 2);
    }
    await until(async () => (await waiting()) === 0);
  });

  it('reward services pass evaluation groups on as such', async () => {
    await run.join('reward-0');
    const { problem, witness } = run.heldOut;
    const ticket = { split: 'eval', pinnedVersion: 3 } as const;
    await run.publish(answers(ground.tokenizer, [witness], ticket, problem), 'e-0');
    await until(() => run.scored.length === 1);
    assert.equal(run.scored[0]!.group.ticket.split, 'eval');
    assert.equal(run.scored[0]!.scores[0]!.reward, 1);
  });

  it('a group that two actors sampled for one ticket is stored once', async () => {
    await run.join('reward-0');
    await run.send(0, {}, 'first');
    await run.send(0, {}, 'second');
    await run.send(0, { attempt: 1 }, 'reissued');
    await until(async () => (await waiting()) === 0 && run.scored.length >= 2);
    assert.deepEqual(run.scored.map(({ group }) => group.ticket.attempt).sort(), [0, 1]);
  });

  it('a group that does not answer its ticket is dead-lettered with the reason', async () => {
    const [replica] = await run.join('reward-0');
    await run.send(0, { problemId: '1,1,1=100' });
    await run.send(1);
    await until(async () => (await run.broker.depths()).dead === 1 && run.scored.length === 1);
    assert.deepEqual(run.orders, [1]);
    const refused = 'reward_service_refused_groups_total{reason="unknown_problem"}';
    assert.equal(await replica.metric(refused), 1);
    const failed = await replica.says(({ msg }) => msg === 'message failed');
    assert.match(JSON.stringify(failed), /1,1,1=100 of ticket t-0/);
  });

  it('a group that an actor sends in the name of another is dead-lettered', async () => {
    const [replica] = await run.join('reward-0');
    const group = answers(ground.tokenizer, [run.heldOut.witness], {}, run.heldOut.problem);
    await run.publish(group, 'lie', 'somebody-else');
    await until(async () => (await run.broker.depths()).dead === 1);
    const refused = 'reward_service_refused_groups_total{reason="wrong_actor"}';
    assert.equal(await replica.metric(refused), 1);
  });

  it('an answer to an easier problem than the one of the ticket earns nothing', async () => {
    const [replica] = await run.join('reward-0');
    // The ticket is for one problem; prompt and correct answers are for another.
    const { problem, witness } = run.heldOut;
    const easier = answers(ground.tokenizer, [witness, witness], {}, problem);
    await run.send(0); // shows which problem ticket 0 is for
    await until(() => run.scored.length === 1);
    const { ticket } = run.scored[0]!.group;
    const lie = { ...easier, ticket: { ...ticket, ticketId: 't-1', order: 1 } };
    await run.publish(lie, 'lie');
    await until(async () => (await run.broker.depths()).dead === 1);
    assert.deepEqual(run.orders, [0]);
    assert.equal(
      await replica.metric('reward_service_refused_groups_total{reason="wrong_prompt"}'),
      1,
    );
  });

  it('reward services score over HTTP and count requests', async () => {
    const [replica] = await run.join('reward-0');
    await run.send(0);
    await until(() => run.scored.length === 1);
    const { problem, witness } = run.heldOut;
    const response = await post(replica, { problemId: problem.id, completion: witness });
    assert.deepEqual([response.status, response.body['reason']], [200, 'correct']);
    const groups = 'reward_service_groups_total{split="train"}';
    await until(async () => (await replica.metric(groups)) === 1);
    for (const source of ['http', 'stream']) {
      const scores = `reward_service_scores_total{reason="correct",source="${source}"}`;
      assert.equal(await replica.metric(scores), 1);
      const judged = `reward_service_judging_seconds_count{source="${source}"}`;
      assert.equal(await replica.metric(judged), 1);
    }
    assert.equal(await replica.metric('reward_service_group_seconds_count'), 1);
    assert.equal(await replica.metric('reward_service_http_seconds_count{status="200"}'), 1);
  });

  it('a reward service waits for the configuration of the run, reports it, and can be stopped meanwhile', async () => {
    const replica = run.start('reward-0');
    await until(async () => {
      const { status, body } = await replica.ask('/readyz');
      return status === 503 && body.includes('waiting for the learner');
    });
    assert.equal(await replica.stop('SIGTERM'), 0);
  });

  it('a reward service refuses a model other than that of the run', async () => {
    const model = { name: 'other', digest: '1'.repeat(64) };
    await new RunConfigStore(run.broker).put({ ...ground.config, model });
    const replica = run.start('reward-0');
    assert.equal(await replica.exitCode(), 2);
    assert.match(
      replica.errors,
      /that of run test \(other\) 1{64}; name the directory of the learner's model/,
    );
  });
});

/** Requests the score of an answer from a replica that has joined its run. */
async function post(replica: ServiceProcess, body: unknown) {
  const { httpPort } = await replica.says(hasJoined);
  const response = await fetch(`http://127.0.0.1:${String(httpPort)}/score`, {
    method: 'POST',
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}
