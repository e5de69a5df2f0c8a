import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { OnnxSampler } from '../../../actor/sampler/onnx-sampler.js';
import type { CanaryTexts } from '../../../actor/sampler/canary-scores.js';
import type { ComputeLogprobs, PolicyChoice, Prove } from '../../../actor/sampler/sampler.js';
import type { GroupRequest, SampledRollout } from '../../../shared/model/rollout-draft.js';
import { PermanentError, UserError } from '../../../shared/base/errors.js';
import { logprobBands, type TokenScores } from '../../../shared/rl/canary.js';
import type { ModelDirectory } from '../../../shared/model/model-directory.js';
import { Scorer } from '../../../shared/model/scorer.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { silent } from '../../support/log.js';
import { tinyModel } from '../../support/tiny-model.js';
import { never } from '../../support/waiting.js';
import { adapterOf, manifestWithAdapter, publishedAdapter } from '../adapters.js';
import { manifest, unproven } from '../values.js';

/** A group that is sampled to its last token: nothing stops it. */
const long: GroupRequest = {
  prompt: Int32Array.of(3, 4, 5),
  count: 2,
  temperature: 1,
  maxTokens: 400,
  stopTokenIds: [],
  seed: 11,
};
const short = { ...long, maxTokens: 6 };

/** Loads a version and lets groups sample with it. */
async function admitted(sampler: OnnxSampler, version: number): Promise<void> {
  await sampler.load(manifestWithAdapter(version), unproven, never);
  sampler.admit(version);
}

describe('the onnx sampler', () => {
  let directory: ModelDirectory & AsyncDisposable;
  let sampler: OnnxSampler;
  let newest = 100;
  const load = (version: number) => admitted(sampler, version);

  /** What the sampler makes of a canary when it loads the version. */
  async function scores(version: number, canary: CanaryTexts): Promise<TokenScores> {
    let found: TokenScores | undefined;
    const prove: Prove = async (score, signal) => {
      found = await score({ ...canary, band: logprobBands.fp32 }, signal);
    };
    await sampler.load(manifestWithAdapter(version), prove, never);
    return found!;
  }

  const adapters = () => ({
    fetchAdapter: ({ version }: PolicyManifest) =>
      Promise.resolve(publishedAdapter(version, directory.config).bytes),
  });

  before(async () => {
    directory = await tinyModel(1, { maxPositions: 512 });
    sampler = await OnnxSampler.start({
      log: silent,
      directory,
      threads: 1,
      concurrency: 4,
      onAdoption: 'keep',
      signal: never,
      adapters: adapters(),
    });
  });
  after(async () => {
    await sampler[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });

  it('nothing is kept of a version that was not proven', async () => {
    const texts = [Int32Array.of(3, 4)];
    let score: ComputeLogprobs | undefined;
    const prove: Prove = async (given, signal) => {
      score = given;
      await given(canary, signal);
      throw new PermanentError('not reproduced');
    };
    const canary = {
      texts,
      places: [[0, 1] as [number, number]],
      temperature: 1,
      band: logprobBands.fp32,
    };
    await assert.rejects(sampler.load(manifestWithAdapter(55), prove, never), /not reproduced/);
    await assert.rejects(score!(canary, never), /policy version 55 is not loaded/);
    await sampler.load(manifestWithAdapter(56), unproven, never);
    sampler.admit(56);
    await assert.rejects(sampler.load(manifestWithAdapter(56), prove, never), /not reproduced/);
    const policy = { version: 56, adoptsNewer: false };
    assert.equal((await sampler.sample(short, policy, never)).length, short.count); // it keeps its own
  });

  /** [T] logprobs of a rollout's tokens under one version, by the scoring graph. */
  async function scored(tokens: Int32Array, version: number): Promise<Float32Array> {
    const scorer = await Scorer.load(directory, { threads: 1 });
    const whole = Int32Array.of(...long.prompt, ...tokens);
    const adapter = adapterOf(version, directory.config);
    const [logprobs] = await scorer.logprobs([whole.slice(0, -1)], [whole.slice(1)], adapter, 1);
    return logprobs!.slice(long.prompt.length - 1);
  }

  /**
   * Samples the long group, and loads ever newer versions until it is complete.
   *
   * @param told gets the versions that the sampler says it draws from.
   */
  async function sampleWhileLoading(
    policy: PolicyChoice,
    told: number[] = [],
  ): Promise<SampledRollout[]> {
    const progress = { isDone: false };
    const sampling = sampler
      .sample(long, policy, never, {
        onDraw: (version) => told.push(version),
        ...{ noneDrawn: () => undefined, wasted: () => assert.fail('nothing was abandoned') },
      })
      .finally(() => (progress.isDone = true));
    while (!progress.isDone) await load(++newest);
    return sampling;
  }

  function assertClose(actual: Float32Array, expected: Float32Array): void {
    actual.forEach((value, i) => {
      assert(Math.abs(value - expected[i]!) < 1e-4, `token ${i}: ${value} and ${expected[i]}`);
    });
  }

  it('the onnx sampler samples with the requested version and reports it', async () => {
    await load(0);
    await load(1);
    for (const version of [0, 1]) {
      const rollouts = await sampler.sample(short, { version, adoptsNewer: false }, never);
      assert.equal(rollouts.length, 2);
      for (const { tokens, behaviorLogprobs, versions } of rollouts) {
        assert.deepEqual(versions, [[version, 6]]);
        assertClose(behaviorLogprobs, await scored(tokens, version));
      }
    }
  });

  it('the onnx sampler adopts a newer version between two tokens of a group', async () => {
    await load(2);
    // Each load is answered between two tokens, so several fall into the 400 of this group.
    const told: number[] = [];
    const rollouts = await sampleWhileLoading({ version: 2, adoptsNewer: true }, told);
    const oldest = Math.min(...rollouts.flatMap(({ versions }) => versions.map(([v]) => v)));
    assert.deepEqual([told[0], told], [oldest, told.toSorted((a, b) => a - b)]);
    for (const { tokens, behaviorLogprobs, versions } of rollouts) {
      const [[firstVersion, firstCount]] = versions as [[number, number]];
      assert(versions.length > 1, `one version alone: ${JSON.stringify(versions)}`);
      assert.deepEqual(
        versions.map(([version]) => version),
        versions.map(([version]) => version).toSorted((a, b) => a - b),
      );
      assert.equal(
        versions.reduce((sum, [, count]) => sum + count, 0),
        400,
      );
      assertClose(
        behaviorLogprobs.slice(0, firstCount),
        await scored(tokens.slice(0, firstCount), firstVersion),
      );
    }
  });

  it('the onnx sampler reads a rollout again with each version that it adopts, if it is started so', async () => {
    await using rereading = await OnnxSampler.start({
      log: silent,
      directory,
      threads: 1,
      concurrency: 1,
      onAdoption: 'reprefill',
      signal: never,
      adapters: adapters(),
    });
    await admitted(rereading, 2);
    const sampling = rereading.sample(long, { version: 2, adoptsNewer: true }, never);
    for (const version of [3, 4]) await admitted(rereading, version);
    for (const { tokens, behaviorLogprobs, versions } of await sampling) {
      assert(versions.length > 1, `one version alone: ${JSON.stringify(versions)}`);
      let end = 0;
      for (const [version, count] of versions) {
        const [from, to] = [end, (end += count)];
        const expected = await scored(tokens.slice(0, to), version);
        assertClose(behaviorLogprobs.slice(from, to), expected.slice(from));
      }
    }
  });

  it('the onnx sampler gives the tokens of a canary the logprobs of the scoring graph, at its temperature', async () => {
    const texts = [Int32Array.of(3, 4, 5, 6, 7, 8), Int32Array.of(9, 3, 8), Int32Array.of(5, 5)];
    const places: [number, number][] = [
      ...([
        [0, 5],
        [2, 1],
        [0, 2],
      ] as [number, number][]),
      ...([
        [1, 1],
        [1, 2],
      ] as [number, number][]),
    ];
    for (const temperature of [1, 0.7]) {
      const { logprobs, isBound } = await scores(7, { texts, places, temperature });
      const scorer = await Scorer.load(directory, { threads: 1 });
      const expected = await scorer.logprobs(
        texts.map((text) => text.slice(0, -1)),
        texts.map((text) => text.slice(1)),
        adapterOf(7, directory.config),
        temperature,
      );
      assertClose(
        logprobs,
        Float32Array.from(places, ([text, at]) => expected[text]![at - 1]!),
      );
      assert.deepEqual(isBound, [false, false, false, false, false]);
    }
  });

  it('the onnx sampler samples with no version that is not admitted', async () => {
    await load(0);
    await sampler.load(manifestWithAdapter(newest + 1), unproven, never);
    const given = { version: newest + 1, adoptsNewer: false };
    await assert.rejects(sampler.sample(short, given, never), /is not admitted/);
    for (const { versions } of await sampler.sample(
      short,
      { version: 0, adoptsNewer: true },
      never,
    )) {
      assert(versions.every(([version]) => version <= newest));
    }
    sampler.admit(++newest);
    const [rollout] = await sampler.sample(short, { version: 0, adoptsNewer: true }, never);
    assert.deepEqual(rollout!.versions, [[newest, 6]]);
  });

  it('the onnx sampler scores a canary between two tokens of a group', async () => {
    await load(0);
    let isDone = false;
    const endless = { ...long, count: 64 };
    const sampling = sampler.sample(endless, { version: 0, adoptsNewer: false }, never);
    void sampling.then(() => (isDone = true));
    const canary = { texts: [Int32Array.of(3, 4, 5)], places: [[0, 2]] as [number, number][] };
    await scores(8, { ...canary, temperature: 1 });
    assert.equal(isDone, false);
    await sampling;
  });

  it('the onnx sampler keeps its version when newer ones arrive but must not be adopted', async () => {
    await load(0);
    for (const { versions } of await sampleWhileLoading({ version: 0, adoptsNewer: false })) {
      assert.deepEqual(versions, [[0, 400]]);
    }
  });

  it('the onnx sampler keeps a version that is dropped to the end of the group', async () => {
    await load(5);
    const sampling = sampler.sample(short, { version: 5, adoptsNewer: false }, never);
    sampler.drop(5);
    for (const { versions } of await sampling) assert.deepEqual(versions, [[5, 6]]);
    await assert.rejects(
      sampler.sample(short, { version: 5, adoptsNewer: false }, never),
      /version 5 is not admitted/,
    );
  });

  it('the onnx sampler abandons a group between two tokens and continues with the next', async () => {
    await load(0);
    const stop = new AbortController();
    const endless = { ...long, count: 64, maxTokens: 500 };
    let wasted = 0;
    const sampling = sampler.sample(endless, { version: 0, adoptsNewer: false }, stop.signal, {
      // The first token of all rollouts is drawn before the second is asked for.
      onDraw: () => {
        stop.abort();
      },
      noneDrawn: () => undefined,
      wasted: (tokens) => (wasted = tokens),
    });
    await assert.rejects(sampling, { name: 'AbortError' });
    assert(wasted >= 64 && wasted < 64 * 500, `${wasted} tokens`);
    const next = await sampler.sample(short, { version: 0, adoptsNewer: false }, never);
    assert.equal(next.length, 2);
  });

  it('the onnx sampler samples waiting groups together with the same results as alone', async () => {
    await load(0);
    const choice = { version: 0, adoptsNewer: false };
    const requests = [11, 12, 13, 14].map((seed) => ({ ...short, seed }));
    const alone: SampledRollout[][] = [];
    for (const request of requests) alone.push(await sampler.sample(request, choice, never));
    const together = await Promise.all(
      requests.map((request) => sampler.sample(request, choice, never)),
    );
    const tokens = (groups: SampledRollout[][]) => groups.map((g) => g.map((r) => r.tokens));
    assert.deepEqual(tokens(together), tokens(alone));
  });

  it('the onnx sampler samples the other groups of a wave when one cannot be sampled', async () => {
    await load(0);
    const choice = { version: 0, adoptsNewer: false };
    const [first, tooLong, last] = await Promise.allSettled([
      sampler.sample(short, choice, never),
      sampler.sample({ ...short, maxTokens: 1_000 }, choice, never),
      sampler.sample(short, choice, never),
    ]);
    assert.equal(tooLong.status, 'rejected');
    assert.match(String(tooLong.reason), /do not fit the model's 512 positions/);
    assert.deepEqual([first.status, last.status], ['fulfilled', 'fulfilled']);
  });

  it('the onnx sampler samples at most 64 rollouts of a large model together', async () => {
    await using large = await tinyModel(2, { intermediateSize: 172_000 });
    await using other = await OnnxSampler.start({
      log: silent,
      directory: large,
      threads: 1,
      concurrency: 4,
      onAdoption: 'keep',
      signal: never,
      adapters: {
        fetchAdapter: ({ version }: PolicyManifest) =>
          Promise.resolve(publishedAdapter(version, large.config).bytes),
      },
    });
    await admitted(other, 0);
    const events: string[] = [];
    const sample = async (name: string) => {
      await other.sample(
        { ...short, count: 32, maxTokens: 2 },
        { version: 0, adoptsNewer: false },
        never,
        {
          onDraw: () => events.push(`${name} begins`),
          ...{ noneDrawn: () => undefined, wasted: () => assert.fail('nothing was abandoned') },
        },
      );
      events.push(`${name} ends`);
    };
    // The first begins at once, alone; the others are there when it ends.
    await Promise.all(['first', 'second', 'third', 'fourth'].map(sample));
    const at = (event: string) => events.indexOf(event);
    assert(at('third begins') < at('second ends'), events.join());
    assert(at('fourth begins') > at('third ends'), events.join());
  });

  it('the onnx sampler abandons a waiting group', async () => {
    await load(0);
    const stop = new AbortController();
    const choice = { version: 0, adoptsNewer: false };
    const underWay = sampler.sample(long, choice, never);
    const waiting = sampler.sample(short, choice, stop.signal);
    stop.abort();
    await assert.rejects(waiting, { name: 'AbortError' });
    assert.equal((await underWay).length, 2);
  });

  it('the onnx sampler refuses a malformed adapter and keeps the loaded ones', async () => {
    await using other = await OnnxSampler.start({
      log: silent,
      directory,
      threads: 1,
      concurrency: 1,
      onAdoption: 'keep',
      signal: never,
      adapters: { fetchAdapter: () => Promise.resolve(Uint8Array.of(1, 2, 3)) },
    });
    await assert.rejects(other.load(manifestWithAdapter(0), unproven, never), PermanentError);
    await load(0);
  });

  it('the onnx sampler refuses a version without weights', async () => {
    await assert.rejects(sampler.load(manifest(0), unproven, never), (error: unknown) => {
      return error instanceof UserError && error.message.includes('--sampler tinker');
    });
  });

  it('the onnx sampler rejects its guard with the reason when it can no longer sample', async () => {
    const none = { fetchAdapter: () => Promise.reject(new Error('not asked for')) };
    const other = await OnnxSampler.start({
      log: silent,
      directory,
      threads: 1,
      concurrency: 1,
      onAdoption: 'keep',
      signal: never,
      adapters: none,
    });
    const guarded = assert.rejects(other.guard(never), /closed/);
    await other[Symbol.asyncDispose]();
    await guarded;
    await assert.rejects(other.sample(short, { version: 0, adoptsNewer: false }, never), /closed/);
  });
});
