import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { UserError } from '../../shared/base/errors.js';
import { losses, lossSettings, type LossName } from '../../shared/rl/losses.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { apiKey, imitation, modelName, startOn } from '../local-backend/running-backend.js';
import { silent } from '../support/log.js';
import { RecordingProxy, type Lacking } from '../support/recording-proxy.js';
import { tinyModel } from '../support/tiny-model.js';
import { adam, apart, bounds, rollouts, trainTwoSteps } from '../support/two-steps.js';

describe('a loss that the server lacks', () => {
  let folder: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;

  before(async () => {
    folder = await tinyModel();
    backend = await startOn(folder.path);
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  const temperature = 0.8;
  const settings = (loss: LossName) => ({ ...lossSettings(loss, bounds, 'learner'), temperature });

  /** A run at a server that lacks something, after it was asked for the losses. */
  async function using<T>(
    lacking: Lacking,
    names: readonly LossName[],
    act: (
      run: Awaited<ReturnType<TinkerClient['createLoraModel']>>,
      carried: Partial<Record<LossName, LossName>>,
      proxy: RecordingProxy,
    ) => Promise<T>,
  ): Promise<T> {
    await using proxy = await RecordingProxy.before(backend.url, undefined, lacking);
    await using client = await TinkerClient.connect({
      baseUrl: proxy.url,
      apiKey,
      log: silent,
      signal: new AbortController().signal,
    });
    const run = await client.createLoraModel({ baseModel: modelName, rank: 4, seed: 3 });
    const carried = await run.probeLosses(names);
    proxy.calls.length = 0;
    return await act(run, carried, proxy);
  }

  /** Two steps of two passes each, all called at once, and the logprobs after them. */
  const train = (lacking: Lacking, loss: LossName) =>
    using(lacking, [loss, 'cross_entropy'], async (run, carried, proxy) => {
      const results = await trainTwoSteps(run, loss, temperature);
      const seen = proxy.calls.map(({ operation, pass }) =>
        pass === undefined ? operation : `${operation} ${pass.loss}`,
      );
      return { results, carried, seen };
    });

  for (const loss of Object.keys(losses) as LossName[]) {
    const carrier = loss === 'importance_sampling' ? 'cross_entropy' : 'importance_sampling';

    it(`${loss} is trained by ${carrier} as by itself, step by step`, async () => {
      const native = await train({}, loss);
      assert.deepEqual(native.carried, {});
      const carried = await train({ losses: [loss] }, loss);
      assert.equal(carried.carried[loss], carrier);
      const minibatch = [`forward ${carrier}`, `forward_backward ${carrier}`];
      const step = [...minibatch, ...minibatch, 'optim_step'];
      assert.deepEqual(carried.seen, [...step, ...step, `forward ${carrier}`]);

      native.results.forEach((expected, i) => {
        const found = carried.results[i]!;
        for (const key of ['loss:sum', 'grad_norm:mean']) {
          const [a = 0, b = 0] = [found.metrics[key], expected.metrics[key]];
          assert(Math.abs(a - b) <= 1e-4 * (1 + Math.abs(b)), `${key} of call ${i}: ${a} for ${b}`);
        }
      });
      const difference = apart(carried.results, native.results);
      assert(difference < 1e-4, `logprobs differ by ${difference}`);
    });
  }

  it('a server that has none of the losses that could carry it is refused in words', async () => {
    const lacking = { losses: ['cispo', 'importance_sampling', 'cross_entropy'] };
    await assert.rejects(
      using(lacking, ['cispo'], () => Promise.resolve()),
      (error) => {
        assert(error instanceof UserError);
        assert.match(error.message, /neither the loss cispo nor importance_sampling or cross_ent/);
        assert.match(error.message, /another server, or one of its losses \(--loss\)/);
        return true;
      },
    );
  });

  it('calls behind a carried pass that fails are refused, and later ones run', async () => {
    await using({ losses: ['cispo'] }, ['cispo'], async (run) => {
      const tooLong = imitation(Array.from({ length: 200 }, () => 3));
      const zeros = new Float32Array(tooLong.tokens.length);
      const bad = { ...tooLong, inputs: { logprobs: zeros, advantages: zeros } };
      const failed = run.forwardBackward([bad], 'cispo', settings('cispo'));
      const behind = run.optimStep(adam);
      await assert.rejects(failed, /199 tokens/);
      await assert.rejects(behind, /199 tokens/);
      const { logprobs } = await run.forwardBackward(rollouts, 'cispo', settings('cispo'));
      assert.equal(logprobs.length, 2);
      const stepped = await run.optimStep(adam);
      assert.equal(stepped['step:max'], 1);
    });
  });
});
