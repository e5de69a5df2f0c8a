import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { connect } from 'nats';
import { watchJetStream } from '../../../cli/nats-server/jetstream-watch.js';
import { isWithoutJetStream } from '../../../shared/broker/failures.js';
import { NatsServer } from '../../support/nats-server.js';

/**
 * Polls a server that is +: on, o: off, h: hanging, d: disconnected, one letter for each poll of 1 s. At s this process is
 * suspended for a minute while it waits for the answer.
 *
 * @returns the polls that restarted the server.
 */
async function restarts(answers: string, untilOn = false, silentMs = 60_000): Promise<number[]> {
  const over = new AbortController();
  const restarted: number[] = [];
  let polled = 0;
  let suspendedMs = 0;
  const broker = {
    get isConnected() {
      if (polled === answers.length) over.abort();
      return answers[polled++] !== 'd';
    },
    offersJetStream: () => {
      const answer = answers[polled - 1];
      if (answer === 's') suspendedMs += 60_000;
      return Promise.resolve(answer === 'h' || answer === 's' ? undefined : answer !== 'o');
    },
  };
  const restart = () => Promise.resolve(void restarted.push(polled));
  const options = { pollMs: 1, silentMs, untilOn, now: () => 1_000 * polled + suspendedMs };
  await watchJetStream(broker, restart, over.signal, options);
  return restarted;
}

describe('the watch for a NATS server that has switched JetStream off', () => {
  it('a server that keeps JetStream off is restarted, and again if that does not help', async () => {
    assert.deepEqual(await restarts('++ooo+'), [5]);
    assert.deepEqual(await restarts('oooooo+'), [3, 6]);
  });

  it('a wait for JetStream ends at the first poll that finds it on, and restarts the server before', async () => {
    assert.deepEqual(await restarts('+ooo', true), []);
    assert.deepEqual(await restarts('dhooo+ooo', true), [5]);
  });

  it('a server that gives no answer for long is restarted, and again if that does not help', async () => {
    assert.deepEqual(await restarts('+hhhhhhhhh+', false, 4_000), [5, 9]);
    assert.deepEqual(await restarts('dhhdh+', true, 4_000), [4]);
    assert.deepEqual(await restarts('hhh+hhhohhh+', false, 4_000), []);
    assert.deepEqual(await restarts('+hshh+hhhhh', false, 4_000), [10]); // time in which we were suspended does not count
  });

  it('a server that is starting or away is left alone', async () => {
    assert.deepEqual(await restarts('oo+oo+oodo+oohodddd+'), []);
  });

  it('a server without JetStream is told from one that has it and from a closed connection', async () => {
    for (const jetStream of [false, true]) {
      await using server = await NatsServer.start({ jetStream });
      const connection = await connect({ servers: server.url });
      const jsm = await connection.jetstreamManager({ checkAPI: false });
      const ask = async () => await jsm.getAccountInfo().then(() => undefined, isWithoutJetStream);
      assert.equal(await ask(), jetStream ? undefined : true);
      await connection.close();
      assert.equal(await ask(), false);
    }
  });
});
