import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { until } from '../support/broker.js';
import {
  firstOrders,
  hasJoined,
  ScoringGround,
  type ScoringRun,
} from '../support/scoring-ground.js';

describe('reward services that end in the middle of their work', { timeout: 180_000 }, () => {
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
  const scoredBy = (name: string) => run.scored.filter(({ scorer }) => scorer === name).length;

  it('leave nothing half done and do nothing twice on SIGTERM, one of two or both', async () => {
    const count = 1_000;
    await run.sendAll(count); // so that there is always more to do
    const [first, second] = await run.join('reward-0', 'reward-1');
    await until(() => scoredBy('reward-0') > 20 && scoredBy('reward-1') > 20);

    assert.equal(await first.stop('SIGTERM'), 0);
    const soFar = scoredBy('reward-1');
    await until(() => scoredBy('reward-1') > soFar + 50); // the other one goes on
    assert.equal(await second.stop('SIGTERM'), 0);

    // What came out and what still waits is everything: no group is in nobody's hands.
    await until(async () => run.scored.length + (await waiting()) === count);
    assert(run.scored.length < count, 'both ended in the middle');
    assert.equal(new Set(run.orders).size, run.scored.length);

    const [third] = await run.join('reward-2');
    await until(() => run.scored.length >= count);
    await until(async () => (await waiting()) === 0);
    assert.deepEqual(run.orders, firstOrders(count));
    assert.equal((await run.broker.depths()).dead, 0);
    // Half done would be: scored by one who ended, but not acknowledged, so scored again.
    for (const replica of [first, second, third]) {
      assert(!replica.log.some(({ msg }) => msg === 'scored before'));
    }
  });

  it('answer the request that they have begun to read', async () => {
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
    await until(() => answer.includes('100 Continue')); // it waits for the rest now
    const ended = replica.stop('SIGTERM');
    await replica.says(({ msg }) => msg === 'shutting down');
    socket.write(body.slice(10));

    await closed;
    assert.match(answer, /HTTP\/1\.1 200 OK[^]*connection: close[^]*"reason":"correct"/i);
    assert.equal(await ended, 0);
  });

  it('lose nothing and repeat nothing when one of them is killed', async () => {
    const [victim] = await run.join('reward-0', 'reward-1');
    const sending = run.sendAll(60);
    await until(() => run.scored.length > 0);
    await victim.stop('SIGKILL');
    await sending;
    await until(async () => run.scored.length >= 60 && (await waiting()) === 0);
    assert.deepEqual(run.orders, firstOrders(60));
  });

  it('lose nothing when the server restarts', async () => {
    await run.join('reward-0');
    const sending = run.sendAll(60);
    await until(() => run.scored.length > 0);
    await ground.server.restart();
    await sending;
    // A queue's restarted server knows no ids of messages that were taken, so repeats are possible
    // here; the learner's ledger sees to those.
    await until(() => new Set(run.orders).size === 60);
    await until(async () => (await waiting()) === 0);
  });
});
