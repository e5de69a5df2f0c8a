import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ErrorCode, NatsError } from 'nats';
import { classify } from '../../../shared/broker/failures.js';
import { Outages, pauseMs, retry } from '../../../shared/broker/retry.js';
import { silent } from '../../support/log.js';

/** As the server answers: a status and one of its error codes. */
function answer(code: number, err_code: number): NatsError {
  const error = new NatsError('refused', String(code));
  error.api_error = { code, err_code, description: 'refused' };
  return error;
}
const timeout = () => NatsError.errorForCode(ErrorCode.Timeout);

describe('the classification of NATS errors', () => {
  const cases: [string, unknown, string][] = [
    ['a full stream', answer(503, 10077), 'full'],
    ['a full disk', answer(500, 10047), 'full'],
    ['no stream at all', NatsError.errorForCode(ErrorCode.NoResponders), 'away'],
    ['JetStream that is not ready', answer(503, 10008), 'away'],
    ['no answer in time', timeout(), 'away'],
    ['a stream that is not there', answer(404, 10059), 'absent'],
    ['a write that lost the race', answer(400, 10071), 'conflict'],
    ['a closed connection', NatsError.errorForCode(ErrorCode.ConnectionClosed), 'closed'],
    ['a name in use', answer(400, 10058), 'other'],
    ['an error from elsewhere', new TypeError('x'), 'other'],
  ];
  for (const [what, error, meaning] of cases) {
    it(`${what} is classified as ${meaning}`, () => {
      assert.equal(classify(error), meaning);
    });
  }
});

describe('retries', () => {
  const options = { what: 'test', log: silent, signal: new AbortController().signal };

  it('a retry continues while the stream is full or the server away, and reports why it waited', async () => {
    const waits: string[] = [];
    const onWait = (failure: string) => waits.push(failure);
    const result = await retry({ ...options, onWait }, (before) =>
      before === 0
        ? Promise.reject(answer(503, 10077))
        : before === 1
          ? Promise.reject(timeout())
          : Promise.resolve('done'),
    );
    assert.equal(result, 'done');
    assert.deepEqual(waits, ['full', 'away']);
  });

  it('a retry reports the whole time that was lost, also that in which an attempt had no answer', async () => {
    const waits: number[] = [];
    const onWait = (_: string, waitedMs: number) => waits.push(waitedMs);
    await retry({ ...options, onWait }, async (before) => {
      if (before > 0) return;
      await sleep(200);
      throw timeout();
    });
    assert(waits[0]! >= 200, String(waits)); // the pause alone takes 40 at most
  });

  it('a retry reports, as long as it waits, what only the user can fix, but not that a queue is full', async () => {
    const outages = new Outages();
    const told: (string | undefined)[] = [];
    const onWait = () => told.push(outages.hindrance);
    const bytes = answer(503, 10077);
    bytes.api_error!.description = 'maximum bytes exceeded';
    const failures = [answer(503, 10077), answer(500, 10047), bytes, timeout()];
    await retry({ ...options, outages, onWait }, (before) =>
      before < failures.length ? Promise.reject(failures[before]!) : Promise.resolve(),
    );
    assert.deepEqual(
      told.map((reason) => reason?.split(/[;,]/)[0]),
      [
        undefined,
        'NATS has no storage left (refused)',
        'NATS has no storage left (maximum bytes exceeded)',
        'NATS is connected and does not answer (TIMEOUT)',
      ],
    );
    assert.equal(outages.hindrance, undefined);
  });

  it('a retry ends at once at an error that retrying cannot fix', async () => {
    let attempts = 0;
    const attempt = () => {
      attempts++;
      return Promise.reject(answer(400, 10071));
    };
    await assert.rejects(retry(options, attempt), { code: '400' });
    assert.equal(attempts, 1);
  });

  it('a retry makes one attempt even if the signal has aborted, then throws the reason of the signal', async () => {
    const signal = AbortSignal.abort(new Error('shutting down'));
    assert.equal(await retry({ ...options, signal }, () => Promise.resolve(1)), 1);
    await assert.rejects(
      retry({ ...options, signal }, () => Promise.reject(timeout())),
      /shutting down/,
    );
  });

  it('a retry doubles its pauses up to 1.28 seconds, with a random part that differs between callers', () => {
    assert.deepEqual(
      [0, 1, 4, 5, 50].map((before) => pauseMs(before, 1)),
      [40, 80, 640, 1280, 1280],
    );
    assert.equal(pauseMs(5, 0), 640);
  });

  it('a retry abandons an attempt as soon as the connection breaks, and makes none while it is down', async () => {
    const outages = new Outages();
    let attempts = 0;
    const onWait = () => {
      outages.end();
    };
    const result = retry({ ...options, outages, onWait }, () => {
      attempts++;
      return attempts === 1 ? new Promise(() => undefined) : Promise.resolve('done');
    });
    outages.begin();
    assert.equal(await result, 'done');
    assert.equal(attempts, 2);

    outages.begin();
    await assert.rejects(
      outages.guard(() => Promise.resolve()),
      { code: 'DISCONNECT' },
    );
  });
});
