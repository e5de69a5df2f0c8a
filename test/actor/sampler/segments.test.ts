import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  appendSegment,
  continuationSeed,
  continuedPrompt,
  continuingVersion,
  endAtStop,
  extendRuns,
  firstRuns,
  nextSegmentLength,
} from '../../../actor/sampler/segments.js';
import { rollout } from '../../support/messages.js';

const segment = (...tokens: number[]) => ({
  tokens: Int32Array.from(tokens),
  logprobs: new Float32Array(tokens.length).fill(-1),
  stopReason: 'length' as const,
});

describe('sampling in segments', () => {
  it('a group is sampled by one request for the whole answer when segments are off', () => {
    assert.equal(nextSegmentLength(0, 100, 0), 100);
    assert.equal(nextSegmentLength(100, 100, 0), 0);
  });

  it('the segments of an answer add up to its token limit, each within the limit of a segment', () => {
    const sizes = fc.tuple(fc.integer({ min: 1, max: 500 }), fc.integer({ min: 1, max: 64 }));
    fc.assert(
      fc.property(sizes, ([maxTokens, segmentTokens]) => {
        let sampled = 0;
        for (let next; (next = nextSegmentLength(sampled, maxTokens, segmentTokens)) > 0;) {
          assert(next <= segmentTokens);
          sampled += next;
        }
        assert.equal(sampled, maxTokens);
      }),
    );
  });

  it('a segment continues with the newest version, or in a single-version group with that of the group', () => {
    assert.equal(continuingVersion({ version: 3, adoptsNewer: true }, [3, 4, 5]), 5);
    assert.equal(continuingVersion({ version: 3, adoptsNewer: false }, [3, 4, 5]), 3);
  });

  it('a rollout ends with the first token that ends a sequence, also where the server went on', () => {
    const whole = rollout(4, { tokens: Int32Array.of(4, 9, 5, 9), stopReason: 'length' });
    const ended = endAtStop(whole, String, { stopTokenIds: [9, 8] });
    assert.deepEqual(
      [[...ended.tokens], ended.behaviorLogprobs.length, ended.versions, ended.stopReason],
      [[4, 9], 2, [[0, 2]], 'stop'],
    );
    assert.equal(endAtStop(whole, String, { stopTokenIds: [] }), whole);
    const last = rollout(2, { tokens: Int32Array.of(4, 9), stopReason: 'length' });
    assert.deepEqual(endAtStop(last, String, { stopTokenIds: [9] }), {
      ...last,
      stopReason: 'stop',
    });
  });

  it('segments by several versions are joined into one rollout', () => {
    const whole = [segment(1, 2), segment(3), { ...segment(4, 5), stopReason: 'stop' as const }]
      .map((piece, index) => ({ piece, version: [3, 3, 5][index]! }))
      .reduce<ReturnType<typeof appendSegment> | undefined>(
        (soFar, { piece, version }) => appendSegment(soFar, piece, version),
        undefined,
      );
    assert.deepEqual(whole, {
      tokens: Int32Array.of(1, 2, 3, 4, 5),
      behaviorLogprobs: new Float32Array(5).fill(-1),
      versions: [
        [3, 3],
        [5, 2],
      ],
      stopReason: 'stop',
    });
  });

  it('a segment continues from the prompt and the sampled tokens', () => {
    const start = continuedPrompt(Int32Array.of(9, 8), rollout());
    assert.deepEqual(start, Int32Array.of(9, 8, 1, 2, 3));
  });

  it('each continuation of a group has its own reproducible seed', () => {
    const seeds = [0, 1, 2].flatMap((index) => [16, 32].map((n) => continuationSeed(7, index, n)));
    assert.equal(new Set(seeds).size, 6);
    assert.equal(continuationSeed(7, 1, 16), seeds[2]);
  });
});

describe('version runs', () => {
  it('version runs start with the first version', () => {
    assert.deepEqual(extendRuns([], 4, 2), [[4, 2]]);
  });
  it('a version run grows while the version stays', () => {
    assert.deepEqual(extendRuns([[4, 2]], 4, 3), [[4, 5]]);
  });
  it('a newer version adds a version run', () => {
    const runs = extendRuns([[4, 2]], 6, 1);
    assert.deepEqual(runs, [
      [4, 2],
      [6, 1],
    ]);
  });
  it('version runs are cut with the tokens', () => {
    const runs: [number, number][] = [
      [4, 2],
      [6, 3],
    ];
    assert.deepEqual(firstRuns(runs, 4), [
      [4, 2],
      [6, 2],
    ]);
    assert.deepEqual(firstRuns(runs, 2), [[4, 2]]);
    assert.deepEqual(firstRuns(runs, 9), runs);
  });
  it('version runs are never empty', () => {
    assert.deepEqual(extendRuns([[4, 2]], 6, 0), [[4, 2]]);
  });
  it('version runs refuse a lower version after a higher one', () => {
    assert.throws(() => extendRuns([[4, 2]], 3, 1), /version 3 .* after version 4/);
  });
});
