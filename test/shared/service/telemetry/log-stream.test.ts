import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { register } from 'prom-client';
import { diskTrouble } from '../../../../shared/service/telemetry/disk-room.js';
import { serveHealth } from '../../../../shared/service/telemetry/health-server.js';
import { LogStream } from '../../../../shared/service/telemetry/log-stream.js';

function failure(code: string): Error {
  return Object.assign(new Error(`${code}: write`), { code });
}

/** A stream onto a disk with so many bytes of room. */
function streamOnto(context: TestContext, disk: { room: number; error?: string }) {
  context.mock.timers.enable({ apis: ['setInterval', 'Date'] });
  let text = '';
  const stream = new LogStream(1, (_fd, bytes) => {
    const taken = Math.min(disk.room, bytes.byteLength);
    if (taken === 0) throw failure(disk.error ?? 'ENOSPC');
    disk.room -= taken;
    text += Buffer.from(bytes.subarray(0, taken)).toString();
    return taken;
  });
  return { stream, text: () => text };
}

async function metric(name: string): Promise<number | undefined> {
  return (await register.getSingleMetric(name)?.get())?.values[0]?.value;
}

describe('the log of a service', () => {
  it('the log stays in memory while the disk is full, and is written completely and in order once there is room', (context) => {
    const disk = { room: 7 };
    const { stream, text } = streamOnto(context, disk);
    for (const line of ['one\n', 'two\n', 'three\n']) stream.write(line);
    assert.equal(text(), 'one\ntwo'); // the rest of a line that is half written comes first
    disk.room = 100;
    context.mock.timers.tick(1_000);
    assert.equal(text(), 'one\ntwo\nthree\n');
    stream.write('four\n');
    assert.equal(text(), 'one\ntwo\nthree\nfour\n');
  });

  it('the log makes the service report that it is not ready as long as the disk is full', async (context) => {
    await using health = await serveHealth('127.0.0.1', 0, () => undefined);
    const ready = async () => {
      const answer = await fetch(`http://127.0.0.1:${health.port}/readyz`);
      return [answer.status, await answer.text()];
    };
    for (const [code, words] of [
      ['ENOSPC', 'the disk is full'],
      ['EDQUOT', 'the disk quota is used up'],
      ['EROFS', 'the file system is read-only'],
    ] as const) {
      const disk = { room: 0, error: code };
      const { stream } = streamOnto(context, disk);
      stream.write('x\n');
      const reason = `${words}: cannot write log; make room, and it continues by itself`;
      assert.deepEqual(await ready(), [503, `${reason}\n`]);
      assert.equal(await metric('rl_disk_full'), 1);
      disk.room = 10;
      context.mock.timers.tick(1_000);
      assert.deepEqual(await ready(), [200, 'ready\n']);
      assert.equal(await metric('rl_disk_full'), 0);
      context.mock.timers.reset();
    }
  });

  it('the log keeps the oldest million characters in memory and counts the lines that it drops', async (context) => {
    const disk = { room: 0 };
    const { stream, text } = streamOnto(context, disk);
    const before = (await metric('rl_log_lines_dropped_total')) ?? 0;
    const line = `${'x'.repeat(9_999)}\n`;
    for (let i = 0; i < 103; i++) stream.write(line);
    assert.equal(await metric('rl_log_lines_dropped_total'), before + 3);
    disk.room = 2_000_000;
    context.mock.timers.tick(1_000);
    assert.equal(text().length, 1_000_000);
  });

  it('the log is no longer written after its reader has gone, which does not count as a full disk', (context) => {
    const disk = { room: 0, error: 'EPIPE' };
    const { stream, text } = streamOnto(context, disk);
    stream.write('x\n');
    disk.room = 100;
    stream.write('y\n');
    context.mock.timers.tick(1_000);
    assert.deepEqual([text(), diskTrouble()], ['', undefined]);
  });
});
