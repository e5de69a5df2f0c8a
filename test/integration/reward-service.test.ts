import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { generateProblems } from '../../shared/countdown/generator.js';
import type { GeneratorSpec } from '../../shared/countdown/spec.js';
import { countdown } from '../../shared/countdown/task.js';
import { loadTokenizer, type Tokenizer } from '../../shared/model/tokenizer.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../shared/wire/run-config.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { answers } from '../reward-service/values.js';
import { brokerOn, silent, until } from '../support/broker.js';
import { countdownSpec } from '../support/countdown-task.js';
import { runConfig } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { ServiceProcess } from '../support/service-process.js';
import { tinyModel } from '../support/tiny-model.js';

const dataset: GeneratorSpec = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: 20,
  maxTarget: 100,
  trainSize: 40,
  testSize: 10,
};
const solved = generateProblems(dataset);
const heldOut = solved[0]!;
const trained = solved.slice(dataset.testSize);

const joinedTheRun = ({ msg }: { msg?: unknown }) => msg === 'joined the run';

describe('reward services as processes on a real server', { timeout: 120_000 }, () => {
  let server: NatsServer;
  let model: Awaited<ReturnType<typeof tinyModel>>;
  let tokenizer: Tokenizer;
  let run: RunConfig;
  let broker: Broker;
  let scored: ScoredGroup[];
  let replicas: ServiceProcess[];
  let stopping: AbortController;
  let collecting: Promise<void>[];

  before(async () => {
    server = await NatsServer.start();
    model = await tinyModel();
    tokenizer = await loadTokenizer(model);
    const task = countdownSpec({ dataset });
    const { digest: datasetDigest } = await countdown(task).load();
    run = runConfig({ task, datasetDigest, model: { name: 'tiny', digest: model.digest } });
  });
  after(async () => {
    await model[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    stopping = new AbortController();
    replicas = [];
    scored = [];
    broker = await brokerOn(server, { client: 'learner', ackWaitMs: { rollouts: 1_000 } });
    await broker.ensureRun({ trainTickets: 100, evalTickets: 100 });
    collecting = (['scored.train', 'scored.eval'] as const).map((source) => {
      const options = { signal: stopping.signal, log: silent, stage: 'learner', concurrency: 1 };
      return consume(broker, source, ScoredGroup, options, ({ value }) => {
        scored.push(value);
        return Promise.resolve();
      });
    });
  });
  afterEach(async () => {
    await Promise.all(replicas.map((replica) => replica.stop('SIGKILL')));
    stopping.abort();
    await Promise.all(collecting);
    await broker.deleteRun();
    await broker[Symbol.asyncDispose]();
  });

  const start = (name: string) => {
    const where = ['--nats-url', server.url, '--run', 'test', '--model-dir', model.path];
    const replica = new ServiceProcess('reward-service', [...where, '--name', name]);
    replicas.push(replica);
    return replica;
  };
  const joined = async (name: string) => {
    const replica = start(name);
    await replica.says(joinedTheRun);
    return replica;
  };
  /** Sends, for the `order`-th ticket, a group of the witness and a wrong answer. */
  const send = (order: number, named: Parameters<typeof answers>[2] = {}, msgId = `g-${order}`) => {
    const { problem, witness } = trained[order % trained.length]!;
    const texts = [witness, problem.numbers.join('+')];
    const group = answers(tokenizer, texts, { ticketId: `t-${order}`, order, ...named }, problem);
    const { signal } = stopping;
    return broker.publish(broker.names.subjects.rollouts('a'), RolloutGroup, group, {
      msgId,
      signal,
    });
  };
  const sendAll = (count: number) =>
    Promise.all(Array.from({ length: count }, (_, order) => send(order)));
  const scoredOrders = () => scored.map(({ group }) => group.ticket.order).sort((a, b) => a - b);

  it('share the groups of a run and score each once', async () => {
    await broker.config.put(run);
    await Promise.all([joined('reward-0'), joined('reward-1')]);
    const scorers = () => new Set(scored.map(({ scorer }) => scorer));
    let count = 0;
    await until(async () => {
      await send(count++);
      return scorers().size === 2;
    });
    await until(() => scored.length >= count);
    assert.deepEqual(
      scoredOrders(),
      Array.from({ length: count }, (_, order) => order),
    );
    for (const { scores, group } of scored) {
      assert.equal(scores[0]!.exactReward, '1', group.ticket.problemId);
      assert.equal(scores.length, 2);
    }
    await until(async () => (await broker.depths()).rollouts === 0);
  });

  it('hand eval groups on as such', async () => {
    await broker.config.put(run);
    await joined('reward-0');
    const { problem, witness } = heldOut;
    const group = answers(tokenizer, [witness], { split: 'eval', pinnedVersion: 3 }, problem);
    const { signal } = stopping;
    const subject = broker.names.subjects.rollouts('a');
    await broker.publish(subject, RolloutGroup, group, { msgId: 'e-0', signal });
    await until(() => scored.length === 1);
    assert.equal(scored[0]!.group.ticket.split, 'eval');
    assert.equal(scored[0]!.scores[0]!.reward, 1);
  });

  it('store a group once that two actors sampled for one ticket', async () => {
    await broker.config.put(run);
    await joined('reward-0');
    await send(0, {}, 'first');
    await send(0, {}, 'second');
    await send(0, { attempt: 1 }, 'reissued');
    await until(async () => (await broker.depths()).rollouts === 0 && scored.length >= 2);
    assert.deepEqual(scored.map(({ group }) => group.ticket.attempt).sort(), [0, 1]);
  });

  it('put aside, with the reason, a group that does not answer its ticket', async () => {
    await broker.config.put(run);
    const replica = await joined('reward-0');
    await send(0, { problemId: '1,1,1=100' });
    await send(1);
    await until(async () => (await broker.depths()).dead === 1 && scored.length === 1);
    assert.deepEqual(scoredOrders(), [1]);
    const refused = 'reward_service_refused_groups_total{reason="unknown_problem"}';
    assert.equal(await replica.metric(refused), 1);
    const failed = await replica.says(({ msg }) => msg === 'message failed');
    assert.match(JSON.stringify(failed), /1,1,1=100 of ticket t-0/);
  });

  it('lose nothing and repeat nothing when one of them is killed', async () => {
    await broker.config.put(run);
    const [victim] = await Promise.all([joined('reward-0'), joined('reward-1')]);
    const sending = sendAll(60);
    await until(() => scored.length > 0);
    await victim.stop('SIGKILL');
    await sending;
    await until(async () => scored.length >= 60 && (await broker.depths()).rollouts === 0);
    assert.deepEqual(
      scoredOrders(),
      Array.from({ length: 60 }, (_, order) => order),
    );
  });

  it('lose nothing when the server restarts', async () => {
    await broker.config.put(run);
    await joined('reward-0');
    const sending = sendAll(60);
    await until(() => scored.length > 0);
    await server.restart();
    await sending;
    // A queue's restarted server knows no ids of messages that were taken, so repeats are possible
    // here; the learner's ledger sees to those.
    await until(() => new Set(scoredOrders()).size === 60);
    await until(async () => (await broker.depths()).rollouts === 0);
  });

  it('end cleanly on SIGTERM, between two groups', async () => {
    await broker.config.put(run);
    const replica = await joined('reward-0');
    const sending = sendAll(40);
    await until(() => scored.length > 0);
    assert.equal(await replica.stop('SIGTERM'), 0);
    await sending;
    await until(async () => scored.length + (await broker.depths()).rollouts === 40);
    await joined('reward-1');
    await until(() => scored.length >= 40);
    assert.equal(new Set(scoredOrders()).size, 40);
  });

  it('score over HTTP and count what they did', async () => {
    await broker.config.put(run);
    const replica = await joined('reward-0');
    await send(0);
    await until(() => scored.length === 1);
    const { problem, witness } = heldOut;
    const response = await post(replica, { problemId: problem.id, completion: witness });
    assert.deepEqual([response.status, response.body['reason']], [200, 'correct']);
    const groups = 'reward_service_groups_total{split="train"}';
    await until(async () => (await replica.metric(groups)) === 1);
    for (const source of ['http', 'stream']) {
      const scores = `reward_service_scores_total{reason="correct",source="${source}"}`;
      assert.equal(await replica.metric(scores), 1);
    }
    assert.equal(await replica.metric('reward_service_group_seconds_count'), 1);
  });

  it('wait for the configuration of the run, say so, and can be ended meanwhile', async () => {
    const replica = start('reward-0');
    await until(async () => {
      const { status, body } = await replica.ask('/readyz');
      return status === 503 && body.includes('waiting for the learner');
    });
    assert.equal(await replica.stop('SIGTERM'), 0);
  });

  it('refuse to work with another model than that of the run', async () => {
    await broker.config.put({ ...run, model: { name: 'other', digest: '1'.repeat(64) } });
    const replica = start('reward-0');
    assert.equal(await replica.exitCode(), 2);
    assert.match(replica.errors, /that of run test \(other\) 1{64}; name the learner's model/);
  });
});

/** Asks a replica that has joined its run for the score of an answer. */
async function post(replica: ServiceProcess, body: unknown) {
  const { httpPort } = await replica.says(joinedTheRun);
  const response = await fetch(`http://127.0.0.1:${String(httpPort)}/score`, {
    method: 'POST',
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}
