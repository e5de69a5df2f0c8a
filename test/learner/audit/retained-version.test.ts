import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { RetainedVersion } from '../../../learner/audit/retained-version.js';
import { TinkerClient } from '../../../shared/tinker/client.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import {
  apiKey,
  imitation,
  modelName,
  startOn,
  tinyModel,
} from '../../local-backend/running-backend.js';
import { silent } from '../../support/log.js';
import { adam } from '../../support/two-steps.js';
import { gate } from '../../support/waiting.js';

const text = Int32Array.of(3, 1, 4, 1, 5, 9, 2, 6);

describe(
  'the version whose weights a backend without a sampler keeps for the audit',
  { timeout: 120_000 },
  () => {
    const opened: AsyncDisposable[] = [];
    let client: TinkerClient;
    const model = { baseModel: modelName, rank: 4, seed: 1 };
    before(async () => {
      const directory = await tinyModel(1, { maxPositions: 64 });
      const backend = await startOn(directory.path);
      const { signal } = new AbortController();
      client = await TinkerClient.connect({ baseUrl: backend.url, apiKey, log: silent, signal });
      opened.push(client, backend, directory);
    });
    after(async () => {
      for (const each of opened) await each[Symbol.asyncDispose]();
    });

    /** Trains a step and saves the weights for training and for sampling. */
    async function step(run: TrainingRun, name: string) {
      await run.forwardBackward([imitation([...text])], 'cross_entropy', {});
      await run.optimStep(adam);
      const [state, weights] = [run.saveState(name), run.saveWeightsForSampler(`policy-${name}`)];
      return { state, session: await client.createSamplingSession(await weights) };
    }

    it('a retained version has the logprobs of its own sampler, whatever is trained meanwhile', async () => {
      const run = await client.createLoraModel(model);
      const first = await step(run, 'first');
      const retained = new RetainedVersion({ client, model, log: silent });
      await retained.offer(1, first.state);
      assert.equal(retained.version, 1);
      const second = await step(run, 'second');
      const sampled = (session: string) =>
        client.sampler(session).logprobs(text, { temperature: 0.8 });
      const [own, ofFirst, ofSecond] = await Promise.all([
        retained.logprobs(1, text, 0.8),
        sampled(first.session),
        sampled(second.session),
      ]);
      assert(Number.isNaN(own[0]) && own.length === text.length);
      const largest = (other: Float32Array) =>
        Math.max(...own.slice(1).map((logprob, i) => Math.abs(logprob - other[i + 1]!)));
      assert(largest(ofFirst) < 2e-5 && largest(ofSecond) > 1e-3);
    });

    it('a version is replaced only by one that is 25 later, and is not asked for any more', async () => {
      const run = await client.createLoraModel(model);
      const { state } = await step(run, 'only');
      const retained = new RetainedVersion({ client, model, log: silent });
      for (const version of [3, 4, 27]) await retained.offer(version, state);
      assert.equal(retained.version, 3);
      const { opened: isTime, open } = gate();
      const later = retained.offer(
        28,
        isTime.then(() => state),
      );
      const asked = retained.logprobs(3, text, 1);
      open();
      await assert.rejects(asked, /weights of version 3 are no longer loaded/);
      await later;
      assert.equal(retained.version, 28);
    });

    it('a checkpoint that is gone leaves none, and the next one is loaded', async () => {
      const run = await client.createLoraModel(model);
      const { state } = await step(run, 'there');
      const retained = new RetainedVersion({ client, model, log: silent });
      const { modelId } = run;
      await retained.offer(1, Promise.resolve(`tinker://${modelId}/weights/gone`));
      assert.equal(retained.version, undefined);
      await retained.offer(26, state);
      assert.equal(retained.version, 26);
    });
  },
);
