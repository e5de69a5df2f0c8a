import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import {
  firstOrders,
  hasJoined,
  ScoringGround,
  type ScoringRun,
} from '../support/scoring-ground.js';
import { until } from '../support/waiting.js';

describe('reward services that end in the middle of their work', { timeout: 180_000 }, () => {
  let ground: ScoringGround;
  let run: ScoringRun;

  before(async () => {
    ground = await ScoringGround.prepare();
  });
  after(() => ground[Symbol.asyncDispose]());
  beforeEach(async () => {
    // Long enough for a busy machine, so that only unfinished groups are redelivered.
    run = await ground.begin(5_000);
  });
  afterEach(() => run[Symbol.asyncDispose]());

  const waiting = async () => (await run.broker.depths()).rollouts;
  const scoredBy = (name: string) => run.scored.filter(({ scorer }) => scorer === name).length;

  it('reward services that end one after another on SIGTERM finish their groups and repeat none', async () => {
    let count = 0;
    const enough = new AbortController();
    const feeding = (async () => {
      while (!enough.signal.aborted) {
        await Promise.all(Array.from({ length: 50 }, () => run.send(count++)));
        // So that there is always more work.
        await until(() => run.scored.length > count - 500 || enough.signal.aborted);
      }
    })();
    const names = ['reward-0', 'reward-1', 'reward-2', 'reward-3'];
    await until(() => count >= 500);
    const replicas = await run.join(...names);
    await until(() => names.every((name) => scoredBy(name) > 20));
    for (const [i, replica] of replicas.entries()) {
      assert.equal(await replica.stop('SIGTERM'), 0);
      const soFar = run.scored.length;
      if (i < replicas.length - 1) await until(() => run.scored.length > soFar + 20); // by the others
    }
    await until(() => run.scored.length < count);
    enough.abort();
    await feeding;

    // Scored and waiting groups are all groups: none is lost.
    await until(async () => run.scored.length + (await waiting()) === count);
    assert.equal(new Set(run.orders).size, run.scored.length);

    const [last] = await run.join('reward-4');
    await until(() => run.scored.length >= count);
    await until(async () => (await waiting()) === 0);
    assert.deepEqual(run.orders, firstOrders(count));
    assert.equal((await run.broker.depths()).dead, 0);
    // An unfinished group would be scored but not acknowledged, so scored again.
    for (const replica of [...replicas, last]) {
      assert(!replica.log.some(({ msg }) => msg === 'group already scored'));
    }
  });

  it('a reward service that ends answers the request that it has begun to read', async () => {
    const [replica] = await run.join('reward-0');
    const { httpPort } = await replica.says(hasJoined);
    const { problem, witness } = run.heldOut;
    const body = JSON.stringify({ problemId: problem.id, completion: witness });

    const socket = connect(Number(httpPort), '127.0.0.1');
    let answer = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk));
    const closed = once(socket, 'close');
    socket.write(`POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n`);
    socket.write(`expect: 100-continue\r\n\r\n${body.slice(0, 10)}`);
    await until(() => answer.includes('100 Continue')); // it waits for the rest
    const ended = replica.stop('SIGTERM');
    await replica.says(({ msg }) => msg === 'shutting down');
    socket.write(body.slice(10));

    await closed;
    assert.match(answer, /HTTP\/1\.1 200 OK[^]*connection: close[^]*"reason":"correct"/i);
    assert.equal(await ended, 0);
  });

  it('reward services lose and repeat no group when one of them is killed', async () => {
    const [victim] = await run.join('reward-0', 'reward-1');
    const sending = run.sendAll(60);
    await until(() => run.scored.length > 0);
    await victim.stop('SIGKILL');
    await sending;
    await until(async () => run.scored.length >= 60 && (await waiting()) === 0);
    assert.deepEqual(run.orders, firstOrders(60));
  });

  it('reward services lose nothing when nats-server restarts', async () => {
    await run.join('reward-0');
    const sending = run.sendAll(60);
    await until(() => run.scored.length > 0);
    await ground.server.restart();
    await sending;
    // A restarted server does not remember the ids of consumed messages, so repeats are possible
    // here; the learner's ledger discards them.
    await until(() => new Set(run.orders).size === 60);
    await until(async () => (await waiting()) === 0);
  });
});
