import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { sha256 } from '../../../../shared/base/bytes.js';
import { PermanentError } from '../../../../shared/base/errors.js';
import {
  downloadRanges,
  LinkRefused,
  type DownloadOptions,
} from '../../../../shared/run/adapters/ranged-download.js';
import { type FileAnswer, FileServer, firstByte, status } from '../../../support/file-server.js';
import { never } from '../../../support/waiting.js';

const file = new Uint8Array(randomBytes(300_000));

/** Downloads the server's file as a manifest describes it; pauses take no time. */
function fetchFrom(
  server: FileServer,
  expected: Uint8Array = file,
  options: Partial<DownloadOptions> = {},
  signal = never,
): Promise<Uint8Array> {
  const { byteLength: bytes } = expected;
  return downloadRanges(
    { url: new URL(server.url), bytes, sha256: sha256(expected) },
    { allow: () => undefined, sleep: () => Promise.resolve(), ...options },
    signal,
  );
}

describe('a download of a known file', { timeout: 60_000 }, () => {
  it('a download that breaks off twice is continued from where it was, on the condition that the file is the same', async () => {
    await using server = await FileServer.start(file);
    server.mishaps = [server.breakAfter(100_000), server.breakAfter(50_000)];
    assert.deepEqual(await fetchFrom(server), file);
    assert.deepEqual(server.asked, [
      '/adapter?signature=secret',
      '/adapter?signature=secret bytes=100000- "1"',
      '/adapter?signature=secret bytes=150000- "1"',
    ]);
  });

  it('a server without ranges is asked again, and the download begins again', async () => {
    await using server = await FileServer.start(file);
    const whole: FileAnswer = (_, response) => response.writeHead(200).end(file);
    server.mishaps = [
      (_, response) => {
        response.writeHead(200, { 'content-length': file.byteLength });
        response.write(file.subarray(0, 200_000), () => setTimeout(() => response.destroy(), 50));
      },
      whole,
    ];
    assert.deepEqual(await fetchFrom(server), file);
    assert.deepEqual(server.asked[1], '/adapter?signature=secret bytes=200000-');
  });

  it('parts of a file that was replaced by the right one in between are never put together', async () => {
    const other = new Uint8Array(randomBytes(file.byteLength));
    await using server = await FileServer.start(other);
    const breakOff = server.breakAfter(100_000);
    server.mishaps = [
      (request, response) => {
        breakOff(request, response);
        server.etag = '"2"';
        server.file = file;
      },
    ];
    assert.deepEqual(await fetchFrom(server), file);
    assert.equal(server.asked.length, 2); // If-Range made the server send all of it
  });

  it('a server that ignores If-Range and sends the rest of another file is asked again from the beginning', async () => {
    await using server = await FileServer.start(file);
    const rest =
      (etag: string): FileAnswer =>
      ({ headers }, response) => {
        const from = firstByte(headers.range);
        const range = `bytes ${from}-299999/300000`;
        response.writeHead(206, { 'content-range': range, ...(etag !== '' && { etag }) });
        response.end(new Uint8Array(300_000 - from));
      };
    for (const etag of ['"2"', '']) {
      server.asked.length = 0;
      server.mishaps = [server.breakAfter(100_000), rest(etag)];
      assert.deepEqual(await fetchFrom(server), file);
      assert.equal(server.asked.at(-1), '/adapter?signature=secret');
    }
  });

  it('a rest that begins at another byte or is not a rest at all is not used', async () => {
    await using server = await FileServer.start(file);
    const wrong = [
      { 'content-range': 'bytes 99999-299999/300000' },
      { 'content-range': 'bytes 0-299999/300000' },
      { 'content-range': 'nonsense' },
      {},
    ];
    for (const headers of wrong) {
      server.mishaps = [
        server.breakAfter(100_000),
        (_, response) => response.writeHead(206, headers).end(file.subarray(100_000)),
      ];
      assert.deepEqual(await fetchFrom(server), file);
    }
    const { serve } = server;
    server.mishaps = [server.breakAfter(100_000)];
    server.always = (request, response) => {
      (request.headers.range === undefined ? serve : status(416))(request, response);
    };
    assert.deepEqual(await fetchFrom(server), file);
  });

  it('what cannot be the rest of the file is left at once, without reading it', async () => {
    await using server = await FileServer.start(file);
    for (const headers of [
      { 'content-range': 'bytes 100000-299999/300000', etag: '"2"' },
      { 'content-range': 'bytes 99999-299999/300000', etag: '"1"' },
    ]) {
      server.mishaps = [
        server.breakAfter(100_000),
        (_, response) => {
          response.writeHead(206, headers).write(new Uint8Array(1)); // and nothing more
        },
      ];
      assert.deepEqual(await fetchFrom(server, file, { limitMs: 10_000 }), file);
    }
  });

  it('a server that announces or sends another length is refused, and no more is read than expected', async () => {
    await using server = await FileServer.start(file);
    await assert.rejects(fetchFrom(server, file.subarray(1)), (error) => {
      assert(error instanceof PermanentError);
      assert.match(error.message, /has 300000 bytes, but 299999 are expected$/);
      return true;
    });
    let sent = 0;
    server.mishaps = [
      (_, response) => {
        const more = () => {
          while (!response.destroyed && response.write(new Uint8Array(65_536))) sent += 65_536;
        };
        response.writeHead(200).on('drain', more); // without a length, and without an end
        more();
      },
    ];
    await assert.rejects(fetchFrom(server), (error) => {
      assert(error instanceof PermanentError);
      assert.match(error.message, /more than the 300000 bytes that are expected$/);
      return true;
    });
    assert(sent < 100 * file.byteLength, `${sent} bytes`);
    server.mishaps = [
      server.breakAfter(100_000),
      (_, response) => {
        response.writeHead(206, { 'content-range': 'bytes 100000-399999/400000' });
        response.end(new Uint8Array(300_000));
      },
    ];
    await assert.rejects(fetchFrom(server), /has 400000 bytes, but 300000 are expected$/);
  });

  it('an answer that ends early without an error is continued', async () => {
    await using server = await FileServer.start(file);
    server.mishaps = [
      (_, response) => response.writeHead(200, { etag: '"1"' }).end(file.subarray(0, 10)),
    ];
    assert.deepEqual(await fetchFrom(server), file);
    assert.equal(server.asked[1], '/adapter?signature=secret bytes=10- "1"');
  });

  it('other bytes of the right length are refused, whatever they are', async () => {
    await using server = await FileServer.start(file);
    await fc.assert(
      fc.asyncProperty(
        fc.nat(file.byteLength - 1),
        fc.integer({ min: 1, max: 255 }),
        fc.option(fc.nat(file.byteLength - 1)),
        async (at, change, breakAt) => {
          server.file = file.slice();
          server.file[at]! ^= change;
          server.mishaps = breakAt === null ? [] : [server.breakAfter(breakAt)];
          await assert.rejects(fetchFrom(server), (error) => {
            assert(error instanceof PermanentError);
            assert.match(error.message, /has SHA-256 [0-9a-f]{64}, but [0-9a-f]{64} is expected$/);
            return true;
          });
        },
      ),
      { numRuns: 12 },
    );
  });

  it('a redirect is followed only to an address that is allowed', async () => {
    await using server = await FileServer.start(file);
    await using other = await FileServer.start(file);
    const location = other.url;
    server.mishaps = [status(302, { location })];
    assert.deepEqual(await fetchFrom(server), file);
    other.asked.length = 0;
    const allow = (url: URL) => {
      if (url.origin !== server.origin) throw new Error(`${url.origin} is not allowed`);
    };
    server.mishaps = [status(307, { location })];
    await assert.rejects(fetchFrom(server, file, { allow }), /is not allowed/);
    assert.deepEqual(other.asked, []);
    server.mishaps = Array.from({ length: 9 }, () => status(302, { location: '/again' }));
    await assert.rejects(fetchFrom(server), /redirects more than 5 times/);
    server.mishaps = [status(302, { location: 'http://' })];
    await assert.rejects(fetchFrom(server), /redirects to no address/);
  });

  it('a link that is refused says so at once, and keeps its signature out of the error', async () => {
    await using server = await FileServer.start(file);
    for (const code of [401, 403, 404, 410]) {
      server.mishaps = [status(code)];
      await assert.rejects(fetchFrom(server), (error) => {
        assert(error instanceof LinkRefused);
        assert.equal(error.message, `${server.origin} answered ${code}`);
        return true;
      });
    }
  });

  it('a server that fails again and again is given up, one that recovers is not', async () => {
    await using server = await FileServer.start(file);
    server.mishaps = Array.from({ length: 5 }, () => status(503));
    assert.deepEqual(await fetchFrom(server), file);
    server.mishaps = Array.from({ length: 6 }, () => status(503));
    await assert.rejects(fetchFrom(server), /gave 0 of 300000 bytes, .* 6 times in a row: .* 503$/);
    server.mishaps = [status(400)];
    await assert.rejects(fetchFrom(server), /answered 400$/);
  });

  it('a server that sends nothing more is left, and the download continues', async () => {
    await using server = await FileServer.start(file);
    server.mishaps = [
      () => undefined,
      (_, response) => {
        response.writeHead(200, { 'content-length': file.byteLength, etag: server.etag });
        response.write(file.subarray(0, 5_000));
      },
    ];
    assert.deepEqual(await fetchFrom(server, file, { stallMs: 100 }), file);
    assert.equal(server.asked.length, 3);
    assert.equal(server.asked[2], '/adapter?signature=secret bytes=5000- "1"');
  });

  it('the whole download is bounded in time, and ends with its caller', async () => {
    await using server = await FileServer.start(file);
    server.mishaps = Array.from({ length: 9 }, () => () => undefined);
    await assert.rejects(
      fetchFrom(server, file, { limitMs: 100 }),
      /did not give the file of 300000 bytes within 0.1 s/,
    );
    const stop = new AbortController();
    const fetching = fetchFrom(server, file, {}, stop.signal);
    stop.abort(new Error('no longer wanted'));
    await assert.rejects(fetching, /no longer wanted/);
  });
});
