import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { publishedBy, type Published } from './nats-frames.js';

const sent = Buffer.from(
  'CONNECT {"verbose":false}\r\nSUB _INBOX.a 1\r\nPUB plain 5\r\nhello\r\nPING\r\n' +
    'PUB asked _INBOX.b 2\r\n\r\n\r\nHPUB with _INBOX.c 22 24\r\nNATS/1.0\r\nA: b c\r\n\r\n  hi\r\nPONG\r\n',
);

describe('what a client of NATS publishes', () => {
  for (const size of [1, 3, sent.length]) {
    it(`a publication of a NATS client is parsed from pieces of ${size} bytes`, () => {
      const found: Published[] = [];
      const feed = publishedBy((message) => found.push(message) > 0);
      const passedOn: Buffer[] = [];
      for (let i = 0; i < sent.length; i += size) passedOn.push(feed(sent.subarray(i, i + size)));
      assert.deepEqual(Buffer.concat(passedOn), sent);
      assert.deepEqual(
        found.map(({ subject, data }) => [subject, data.toString()]),
        [
          ['plain', 'hello'],
          ['asked', '\r\n'],
          ['with', 'hi'],
        ],
      );
      assert.match(found[2]!.headers, /A: b c/);
    });
  }

  it('a held-back publication does not reach the server', () => {
    const feed = publishedBy(({ subject }) => subject !== 'asked');
    assert.equal(
      feed(sent).toString(),
      sent.toString().replace('PUB asked _INBOX.b 2\r\n\r\n\r\n', ''),
    );
  });
});
