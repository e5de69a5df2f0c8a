import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CanaryNotReproduced } from '../../../actor/sampler/refusal.js';
import { Standing } from '../../../actor/sampler/standing.js';
import { silent } from '../../support/log.js';

const finding = { difference: 2, band: 1, mean: 0.5, meanBand: 0.1, place: 3 };
const notReproduced = (version: number) =>
  new CanaryNotReproduced('it differs', { version, ...finding });

function standing() {
  const seen: string[] = [];
  let clock = 0;
  const server = new Standing({
    ...{ url: 'http://engine', refusedMs: 30_000, log: silent, now: () => clock },
    onChange: (outage) => seen.push(`change: ${outage ?? 'back'}`),
    onRefusal: (outage) => seen.push(`refusal: ${outage}`),
  });
  const at = (ms: number) => (clock = ms);
  return { server, seen, at };
}

describe('the standing of a server of an engine', () => {
  it('a server that was refused rests until refusedMs later', () => {
    const { server, at } = standing();
    assert(!server.isResting);
    at(1_000);
    server.refuse(new Error('not loaded'));
    assert.deepEqual([server.isUp, server.reason, server.isResting], [false, 'not loaded', true]);
    at(30_999);
    assert(server.isResting);
    at(31_000);
    assert(!server.isResting);
  });

  it('a refusal ends the calls of the server, and what it had proven', () => {
    const { server, seen } = standing();
    const { trust, outages } = server;
    server.proven.add('v1');
    server.refuse(notReproduced(1));
    assert.match(String(trust.reason), /http:\/\/engine: it differs/);
    assert(!server.trust.aborted, 'the calls after it are others');
    assert.deepEqual([server.proven.size, server.outages], [0, outages + 1]);
    assert.deepEqual(seen, ['change: canary', 'refusal: canary']);
  });

  it('a server that is lost keeps its calls, which may still be answered', () => {
    const { server, seen } = standing();
    const { trust } = server;
    server.lose('down', 'no answer');
    assert.deepEqual([server.isUp, trust.aborted], [false, false]);
    assert.deepEqual(seen, ['change: down']);
  });

  it('attempts at one version are counted, until another reason keeps the server out or it comes back', () => {
    const { server, seen } = standing();
    const attempts = () => server.refused?.attempts;
    for (const [version, expected] of [
      [4, 1],
      [4, 2],
      [5, 1],
    ] as const) {
      server.refuse(notReproduced(version));
      assert.equal(attempts(), expected);
    }
    server.stayDown('no answer');
    assert.deepEqual([server.reason, attempts()], ['no answer', undefined]);
    server.refuse(notReproduced(5));
    server.readmit('0.32.0');
    assert.deepEqual([server.isUp, attempts(), server.isResting], [true, undefined, true]);
    const refusals = seen.filter((each) => each.startsWith('refusal'));
    const changes = seen.filter((each) => each.startsWith('change'));
    assert.equal(refusals.length, 4);
    assert.deepEqual(changes, ['change: canary', 'change: back']);
  });
});
