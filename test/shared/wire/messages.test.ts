import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decode as unpack, encode as pack } from '@msgpack/msgpack';
import fc from 'fast-check';
import type { z } from 'zod';
import { decode, encode, WireError } from '../../../shared/wire/codec.js';
import { Checkpoint } from '../../../shared/wire/ledger.js';
import { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { Rollout, RolloutGroup } from '../../../shared/wire/rollout-group.js';
import { RunConfig } from '../../../shared/run/run-config.js';
import { RunEvent } from '../../../shared/wire/run-event.js';
import { ScoredGroup } from '../../../shared/wire/scored-group.js';
import { Ticket } from '../../../shared/wire/ticket.js';
import { everyMessage, manifest } from '../../support/every-message.js';
import {
  checkpoint,
  rollout,
  rolloutGroup,
  runConfig,
  scoredGroup,
  ticket,
} from '../../support/messages.js';

describe('every message', () => {
  for (const { name, schema, message } of everyMessage) {
    it(`a message is decoded as it was sent: ${name}`, () => {
      assert.deepEqual(decode(schema, 'test', encode(schema, message)), message);
    });

    it(`a message is refused with an unknown field: ${name}`, () => {
      const body = pack({ ...(unpack(encode(schema, message)) as object), surprise: 1 });
      assert.throws(() => decode(schema, 'test', body), /surprise/);
    });

    it(`a message is refused from another wire version: ${name}`, () => {
      const body = pack({ ...(unpack(encode(schema, message)) as object), v: 99 });
      assert.throws(() => decode(schema, 'test', body), /test: v: /);
    });

    it(`a message is refused when it is truncated: ${name}`, () => {
      const bytes = encode(schema, message);
      const cut = fc.integer({ min: 0, max: bytes.byteLength - 1 });
      fc.assert(
        fc.property(cut, (length) => {
          assert.throws(() => decode(schema, 'test', bytes.subarray(0, length)), {
            name: 'WireError',
          });
        }),
      );
    });
  }
});

describe('a rollout group', () => {
  it('a rollout group takes at most 10 bytes a token, 16 rollouts of 256 tokens', () => {
    const rollouts = Array.from({ length: 16 }, () =>
      rollout(256, {
        versions: [
          [120, 100],
          [121, 156],
        ],
      }),
    );
    const group = rolloutGroup({ ticket: ticket({ groupSize: 16 }), rollouts });
    const bytes = encode(RolloutGroup, group).byteLength;
    assert(bytes <= 10 * 16 * 256, `${bytes} bytes`);
    const scored = encode(ScoredGroup, scoredGroup({ group })).byteLength;
    assert(scored <= 10 * 16 * 256, `${scored} bytes`);
  });

  it('a rollout group is refused with a prompt of negative tokens', () => {
    const group = rolloutGroup({ promptTokens: Int32Array.of(3, -1) });
    assert.throws(() => encode(RolloutGroup, group), /promptTokens: a token id is at least 0/);
  });

  it('a rollout group is refused without as many rollouts as its ticket asked for', () => {
    const group = rolloutGroup({ rollouts: [rollout()] });
    assert.throws(
      () => encode(RolloutGroup, group),
      /rollouts: expected as many rollouts as the ticket/,
    );
  });

  it('a rollout is decoded unchanged with any tokens, logprobs and version runs', () => {
    const run = fc.tuple(fc.nat(1e6), fc.integer({ min: 1, max: 9 }));
    const runs = fc
      .uniqueArray(run, { minLength: 1, maxLength: 4, selector: ([version]) => version })
      .map((all) => all.sort(([a], [b]) => a - b));
    fc.assert(
      fc.property(runs, fc.integer(), (versions, seed) => {
        const length = versions.reduce((sum, [, count]) => sum + count, 0);
        const sampled = rollout(length, {
          versions,
          tokens: Int32Array.from({ length }, (_, i) => Math.abs(seed ^ i) % 2 ** 31),
          behaviorLogprobs: Float32Array.from({ length }, (_, i) => -Math.abs(seed % (i + 2))),
        });
        assert.deepEqual(decode(Rollout, 'test', encode(Rollout, sampled)), sampled);
      }),
    );
  });
});

describe('a group with a million errors', () => {
  const million = 1_000_000;
  const group = rolloutGroup();
  const { tokens, behaviorLogprobs, ...rest } = rollout(3);
  const bytes = (array: Int32Array | Float32Array) => new Uint8Array(array.buffer);
  const sent = (rollouts: unknown[]) =>
    pack(
      { ...group, promptTokens: bytes(group.promptTokens), rollouts },
      { ignoreUndefined: true },
    );
  const withVersions = (versions: unknown[]) =>
    sent([{ ...rest, tokens: bytes(tokens), behaviorLogprobs: bytes(behaviorLogprobs), versions }]);
  const cases: [what: string, body: () => Uint8Array, complaint: RegExp][] = [
    ['rollouts that are none', () => sent(Array(million).fill(null)), /rollouts: Too big[^;]*$/],
    [
      'runs of versions that are none',
      () => withVersions(Array(million).fill(null)),
      /rollouts\.0\.versions\.0: expected \[version, number of tokens\]$/,
    ],
    [
      'runs of no tokens',
      () => withVersions(Array(million).fill([1, 0])),
      /rollouts\.0\.versions\.0\.1: expected a number of tokens/,
    ],
    [
      'a run of the same version for every token',
      () => withVersions(Array(million).fill([7, 1])),
      /rollouts\.0\.versions\.1\.0: expected a version above 7, that of the run before$/,
    ],
    [
      'unknown fields',
      () => pack(Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`field ${i}`, 0]))),
      /Unrecognized keys[^]*…$/,
    ],
  ];
  for (const [what, body, complaint] of cases) {
    it(`a group with a million errors is refused with a short message: ${what}`, () => {
      assert.throws(
        () => decode(RolloutGroup, 'test', body()),
        (error: unknown) => {
          assert(error instanceof WireError, String(error));
          assert(error.message.length < 2_100, `${error.message.length} characters`);
          assert.match(error.message, complaint);
          return true;
        },
      );
    });
  }
});

describe('a malformed rollout is refused, saying what is wrong:', () => {
  const cases: [string, Partial<Rollout>, RegExp][] = [
    [
      'no tokens',
      { tokens: new Int32Array(), behaviorLogprobs: new Float32Array(), versions: [[0, 1]] },
      /tokens: a rollout has at least one token/,
    ],
    ['a negative id', { tokens: Int32Array.of(1, -1, 2) }, /tokens: a token id is at least 0/],
    [
      'a logprob too few',
      { behaviorLogprobs: Float32Array.of(-1, -1) },
      /behaviorLogprobs: expected one logprob for each of 3 tokens/,
    ],
    [
      'a positive logprob',
      { behaviorLogprobs: Float32Array.of(-1, 0.1, -1) },
      /finite and at most 0/,
    ],
    [
      'a logprob of NaN',
      { behaviorLogprobs: Float32Array.of(-1, NaN, -1) },
      /finite and at most 0/,
    ],
    [
      'a logprob of minus infinity',
      { behaviorLogprobs: Float32Array.of(-1, -Infinity, -1) },
      /finite and at most 0/,
    ],
    [
      'versions that do not cover it',
      { versions: [[0, 2]] },
      /versions: expected the runs to cover 3 tokens/,
    ],
    [
      'versions that cover more',
      {
        versions: [
          [0, 2],
          [1, 2],
        ],
      },
      /cover 3 tokens/,
    ],
    [
      'an empty run of versions',
      {
        versions: [
          [0, 0],
          [1, 3],
        ],
      },
      /versions\.0\.1: /,
    ],
    ['a negative version', { versions: [[-1, 3]] }, /versions\.0\.0: /],
    ['no versions', { versions: [] }, /versions: /],
    ['an unknown stop reason', { stopReason: 'tired' as 'stop' }, /stopReason: /],
  ];
  for (const [what, over, message] of cases) {
    it(`a rollout with ${what} is refused, saying what is wrong`, () => {
      const { tokens, behaviorLogprobs, ...rest } = rollout(3, over);
      const body = pack({
        ...rest,
        tokens: new Uint8Array(tokens.buffer),
        behaviorLogprobs: new Uint8Array(behaviorLogprobs.buffer),
      });
      assert.throws(() => decode(Rollout, 'offbeat.r.rollouts.a', body), {
        name: 'WireError',
        message,
      });
    });
  }
});

describe('a malformed message is refused, saying what is wrong:', () => {
  const cases: [string, z.ZodType, unknown, RegExp][] = [
    ['a ticket for no rollout', Ticket, ticket({ groupSize: 0 }), /groupSize: /],
    ['a ticket for too many rollouts', Ticket, ticket({ groupSize: 5_000 }), /groupSize: /],
    ['a ticket of an unknown split', Ticket, ticket({ split: 'test' as 'eval' }), /split: /],
    [
      'a temperature below zero',
      Ticket,
      ticket({ samplingParams: { temperature: -1, maxTokens: 1, seed: 0 } }),
      /samplingParams\.temperature: /,
    ],
    ['a fraction of a version', Ticket, ticket({ issuedAtVersion: 0.5 }), /issuedAtVersion: /],
    [
      'an adapter without a digest',
      PolicyManifest,
      { ...manifest, adapter: { ...manifest.adapter!, sha256: 'abc' } },
      /adapter\.sha256: /,
    ],
    [
      'a sampler that is not at the backend',
      PolicyManifest,
      { ...manifest, samplerPath: '/etc/passwd' },
      /samplerPath: /,
    ],
    ['a checkpoint without a state', Checkpoint, checkpoint({ statePath: 'x' }), /statePath: /],
    ['a run with a dot in its name', RunConfig, runConfig({ run: 'a.b' }), /run: expected 1 to 48/],
    [
      'a learning rate of zero',
      RunConfig,
      runConfig({ adam: { ...runConfig().adam, learningRate: 0 } }),
      /adam\.learningRate: /,
    ],
    ['an event of no known kind', RunEvent, { v: 1, at: 1, kind: 'party' }, /kind: /],
    ['not a map', Ticket, [1, 2], /message: /],
  ];
  for (const [what, schema, value, message] of cases) {
    it(`a malformed message is refused, saying what is wrong: ${what}`, () => {
      assert.throws(() => decode(schema, 'test', pack(value)), { name: 'WireError', message });
    });
  }

  it('a scored group with a score too few is refused', () => {
    const scored = scoredGroup();
    scored.scores.pop();
    assert.throws(() => encode(ScoredGroup, scored), /scores: expected one score per rollout/);
  });

  it('a scored group with a reward that is not a fraction is refused', () => {
    const scored = scoredGroup();
    for (const wrong of ['0.5', '0/0', '1/00']) {
      scored.scores[0]!.exactReward = wrong;
      assert.throws(() => encode(ScoredGroup, scored), /scores\.0\.exactReward: /);
    }
  });
});
