import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { pino } from 'pino';
import { z } from 'zod';
import { newSeed } from '../../../../shared/broker/access.js';
import { loadConfig } from '../../../../shared/service/config.js';
import { PermanentError } from '../../../../shared/base/errors.js';
import { loggerOptions } from '../../../../shared/service/telemetry/logger.js';
import { withoutSecrets } from '../../../../shared/service/telemetry/secrets.js';
import { printError } from '../../../../shared/service/telemetry/print-error.js';

/** The line that a service would write. */
function logged(write: (log: pino.Logger) => void): string {
  const lines: string[] = [];
  const sink = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      lines.push(chunk.toString());
      done();
    },
  });
  write(pino({ ...loggerOptions(), base: null }, sink));
  assert.doesNotThrow(() => JSON.parse(lines.join('')));
  return lines.join('');
}

describe('secrets in the log', () => {
  const key = 'tml-0123456789abcdef';
  const seed = newSeed();
  const address = 'nats://user:pa55word@127.0.0.1:4222';
  const jwt = `eyJ0eXAiOiJKV1Qi.${'A'.repeat(40)}.${'b'.repeat(40)}`;

  it('a JWT is removed wherever it begins, also after a text of many such beginnings', () => {
    const hostile = 'eyJ-'.repeat(50_000); // takes minutes if each is searched to the end of the text
    assert.equal(withoutSecrets(hostile), hostile);
    assert.equal(withoutSecrets(`${hostile} ${jwt}`), `${hostile} [redacted JWT]`);
    for (const before of ['token-', 'a.', '"', '='])
      assert.equal(withoutSecrets(`${before}${jwt}`), `${before}[redacted JWT]`);
  });

  it('the log has no secret in its fields, at any of three levels', () => {
    for (const name of ['apiKey', 'api_key', 'password', 'authorization', 'x-api-key']) {
      const line = logged((log) => {
        const secret = { [name]: 'hunter2' };
        log.info({ ...secret, config: secret, request: { headers: secret } }, 'started');
      });
      assert.doesNotMatch(line, /hunter2/, name);
      assert.match(line, /\[redacted\]/);
    }
  });

  it('the log has no secret in its texts: messages, errors, their causes and stacks', () => {
    const cause = new Error(`refused at ${address} with seed ${seed}`);
    const err = new Error(`key ${key} is no good, nor is "${jwt}"`, { cause });
    const line = logged((log) => {
      log.error({ err, url: address }, `crashed with ${key}`);
    });
    for (const secret of [key, seed, 'pa55word', jwt]) assert(!line.includes(secret), line);
    assert.match(line, /nats:\/\/\[redacted\]@127\.0\.0\.1:4222/);
  });

  it('the log has no key of this process, whatever characters the key has', (context) => {
    const given = `p4ss "w;ord",) \\ with/all`;
    const schema = z.object({ apiKey: z.string(), maxSteps: z.coerce.number() });
    loadConfig(schema, 'learner', [`--api-key=${given}`, '--max-steps=3'], {});
    const err = new Error(`401 for ${given}!`);
    const line = logged((log) => {
      log.error({ err, quoted: JSON.stringify({ given }) }, given);
    });
    assert.doesNotMatch(line, /p4ss|w;ord|with\/all/);

    const write = context.mock.method(process.stderr, 'write', () => true);
    printError(`the backend refuses ${given}`);
    const told = write.mock.calls.map((call) => call.arguments[0]);
    write.mock.restore();
    assert.deepEqual(told, ['the backend refuses [redacted]\n']);
  });

  it('the log is unchanged if it has no secret', () => {
    const line = logged((log) => {
      log.info({ step: 3, url: 'http://127.0.0.1:10610/a@b', run: 'tml' }, 'listening');
    });
    const { time: _time, ...fields } = JSON.parse(line) as Record<string, unknown>;
    const url = 'http://127.0.0.1:10610/a@b';
    assert.deepEqual(fields, { level: 30, step: 3, url, run: 'tml', msg: 'listening' });
  });
});

describe('a log line that repeats', () => {
  const lines: Record<string, unknown>[] = [];
  const sink = {
    write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  };

  function start(context: TestContext): pino.Logger {
    lines.length = 0;
    context.mock.timers.enable({ apis: ['setInterval', 'Date'] });
    return pino({ ...loggerOptions(), base: null, timestamp: false }, sink);
  }

  it('a repeated log line is written 20 times, then every 10 seconds with the number of omitted lines', (context) => {
    const log = start(context);
    for (let i = 0; i < 86_000; i++) log.warn({ subject: 'a', i }, 'message failed');
    assert.equal(lines.length, 20);
    context.mock.timers.tick(10_000);
    assert.equal(lines.length, 21);
    const { i, leftOut } = lines[20]!;
    assert.deepEqual([i, leftOut], [85_999, 85_980]); // the newest stands for all of them
    context.mock.timers.tick(10_000);
    assert.equal(lines.length, 21);
  });

  it('a repeated log line does not suppress another phrase, subject or level', (context) => {
    const log = start(context);
    for (let i = 0; i < 100; i++) log.warn({ subject: 'a' }, 'message failed');
    log.warn({ subject: 'b' }, 'message failed');
    log.warn({ subject: 'a' }, 'message given up');
    log.error({ subject: 'a' }, 'message failed');
    assert.equal(lines.length, 23);
  });

  it('a log line that repeats once a second is always written', (context) => {
    const log = start(context);
    for (let i = 0; i < 200; i++) {
      log.warn('still waiting');
      context.mock.timers.tick(1_000);
    }
    assert.equal(lines.length, 200);
  });

  it('the omitted lines of a kind are counted in the log before the kind is evicted by many others', (context) => {
    const log = start(context);
    for (let i = 0; i < 50; i++) log.warn({ subject: 'a', i }, 'message failed');
    for (let i = 0; i < 1_000; i++) log.warn({ subject: `b${i}` }, 'message failed');
    const summaries = lines.filter(({ leftOut }) => leftOut !== undefined);
    assert.deepEqual(
      summaries.map(({ subject, i, leftOut }) => [subject, i, leftOut]),
      [['a', 49, 30]],
    );
  });

  it('a fatal log line is never omitted', (context) => {
    const log = start(context);
    for (let i = 0; i < 100; i++) log.fatal('crashed');
    assert.equal(lines.length, 100);
  });
});

describe('an error in the log', () => {
  it('an error in the log has a stack if the fault is ours, and none if others sent wrong input', () => {
    const stackOf = (err: Error) =>
      logged((log) => {
        log.warn({ err }, 'failed');
      });
    assert.match(stackOf(new RangeError('boom')), /RangeError: boom\\n +at /);
    const line = stackOf(new PermanentError('not MessagePack'));
    assert.match(line, /"err":\{"type":"PermanentError","message":"not MessagePack"\}/);
  });
});
