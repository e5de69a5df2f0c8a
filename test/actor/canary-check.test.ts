import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { CanaryCheck } from '../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../actor/sampler/refusal.js';
import { OnnxSampler } from '../../actor/sampler/onnx-sampler.js';
import type { Prove } from '../../actor/sampler/sampler.js';
import { CanarySource } from '../../learner/publish/canary-source.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { createAdapter, encodeAdapter, type Adapter } from '../../shared/model/lora.js';
import { readModelDirectory, type ModelDirectory } from '../../shared/model/model-directory.js';
import { readWeights } from '../../shared/model/model-weights.js';
import { writeModelDirectory } from '../../shared/model/model-writer.js';
import { Scorer } from '../../shared/model/scorer.js';
import { roundedAdapterBand } from '../../shared/rl/canary.js';
import { canaryDigest, type Canary } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { silent } from '../support/log.js';
import { tinyModel } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';
import { adapterOf, manifestWithAdapter } from './adapters.js';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

const texts: Canary['texts'] = [
  Int32Array.of(3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
  Int32Array.of(14, 3, 3, 8, 9, 5, 4, 6, 10, 11, 7, 12),
];
const version = 5;

/** An adapter that differs from that of the version by less than bfloat16 may. */
function almost({ config }: ModelDirectory): Adapter {
  const own = adapterOf(version, config);
  const shrunk = [...own.tensors].map(
    ([key, { dims, data }]) => [key, { dims, data: data.map((value) => 0.99 * value) }] as const,
  );
  return { ...own, tensors: new Map(shrunk) };
}

describe('a sampler that must reproduce a canary', { timeout: 120_000 }, () => {
  let directory: ModelDirectory & AsyncDisposable;
  let manifest: PolicyManifest;
  let canary: Canary;
  let fetched: Adapter; // what the sampler gets for the version

  const adapters = {
    fetchAdapter: () => Promise.resolve(encodeAdapter(fetched).safetensors),
  };
  const start = (model: ModelDirectory) =>
    OnnxSampler.start({
      ...{ directory: model, threads: 1, concurrency: 1, onAdoption: 'keep' as const, adapters },
      ...{ log: silent, signal: never },
    });

  before(async () => {
    directory = await tinyModel(1);
    fetched = adapterOf(version, directory.config);
    const scorer = await Scorer.load(directory, { threads: 1 });
    let trained = almost(directory);
    const source = new CanarySource({
      run: {
        forward: async (data, _loss, { temperature = 1 }) => ({
          logprobs: await scorer.logprobs(
            data.map(({ tokens }) => tokens),
            data.map(({ targetTokens }) => targetTokens),
            trained,
            temperature,
          ),
          metrics: {},
        }),
      },
      ...{ texts, temperature: 0.8, arithmetic: 'fp32' as const, log: silent },
      idle: new IdleClock(() => 0),
    });
    await source.request(version - 1)();
    trained = adapterOf(version, directory.config);
    canary = (await source.request(version)())!;
    manifest = { ...manifestWithAdapter(version), canary };
  });
  after(() => directory[Symbol.asyncDispose]());

  /** The finding of a check after a load, or undefined if it passes. */
  async function finding({
    adapter = adapterOf(version, directory.config),
    model = directory,
    from = manifest,
    asked = canary,
  }: {
    adapter?: Adapter;
    model?: ModelDirectory;
    from?: PolicyManifest;
    asked?: Canary;
  }) {
    fetched = adapter;
    await using sampler = await start(model);
    const check = new CanaryCheck(sampler, 'fp32');
    const prove: Prove = (...what) => check.require({ ...manifest, canary: asked }, ...what);
    try {
      await sampler.load(from, prove, never);
    } catch (caught) {
      assert(caught instanceof CanaryNotReproduced, String(caught));
      assert.equal(check.certificate([version]), undefined);
      return caught;
    }
    const { engine, ...rest } = check.certificate([version, 99])!;
    assert.match(engine, /^onnxruntime-node \d/);
    assert.deepEqual(rest, {
      arithmetic: 'fp32',
      canaries: [[version, canaryDigest(version, asked)]],
    });
    return undefined;
  }

  it('an honest sampler passes', async () => {
    assert.equal(await finding({}), undefined);
  });

  it('a sampler with other weights, another scale or another temperature is refused', async () => {
    const { config } = directory;
    const own = adapterOf(version, config);
    const scale = manifest.adapter!;
    const base = createAdapter(config, { ...scale, seed: 0, attn: true, mlp: true });
    const swap = (key: string) =>
      key.replace(/gate_proj|up_proj/, (name) => (name === 'up_proj' ? 'gate_proj' : 'up_proj'));
    const tensors = new Map(
      [...own.tensors.keys()].map((key) => [key, own.tensors.get(swap(key))!]),
    );
    const faults: Record<string, Parameters<typeof finding>[0]> = {
      'adapter not loaded': { adapter: base },
      'previous version': { adapter: adapterOf(version - 1, config) },
      "another run's adapter": { adapter: adapterOf(99, config) },
      'wrong alpha': { from: { ...manifest, adapter: { ...scale, alpha: 1.01 * scale.alpha } } },
      'gate and up swapped': { adapter: { ...own, tensors } },
      'wrong temperature': { asked: { ...canary, temperature: 1.01 * canary.temperature } },
    };
    for (const [name, fault] of Object.entries(faults)) {
      const found = await finding(fault);
      assert(found !== undefined, `${name} passed`);
      assert(found.finding.difference > 1e-3, name);
      assert.match(found.message, /^the sampler does not reproduce its canary: token \d+ of text/);
    }
  });

  it('a sampler with the version before is refused by its name, where a coarse arithmetic would let it pass', async () => {
    const adapter = almost(directory);
    const { earlier, ...alone } = { ...canary, arithmetic: 'bf16' as const };
    const found = await finding({ adapter, asked: { ...alone, earlier } });
    assert.match(found!.message, new RegExp(`It is closer to version ${version - 1}\\.`));
    const { closerTo, mean, meanBand } = found!.finding;
    assert.equal(closerTo, version - 1);
    assert(mean < meanBand);
    assert.equal(await finding({ adapter, asked: alone }), undefined);
    assert.equal(await finding({ asked: { ...alone, earlier } }), undefined);
  });

  it('a sampler with quantized weights is refused as fp32', async () => {
    const weights = await readWeights(directory);
    const quantized = new Map(
      [...weights].map(([name, { dims, data }]) => {
        const step = data.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127;
        return [name, { dims, data: data.map((value) => Math.round(value / step) * step) }];
      }),
    );
    await using other = await tinyModel(2);
    await writeModelDirectory(
      other.path,
      await readFile(join(directory.path, 'config.json'), 'utf8'),
      quantized,
    );
    assert(await finding({ model: await readModelDirectory(other.path) }));
  });

  it('a coarser arithmetic, of the sampler or of the trainer, allows a larger difference', async () => {
    fetched = adapterOf(version, directory.config);
    await using sampler = await start(directory);
    const off = {
      ...canary,
      logprobs: canary.logprobs.map((logprob) => logprob - 0.01),
    };
    const require = (own: 'fp32' | 'bf16', trainer: 'fp32' | 'bf16') => {
      const asked = { ...manifest, canary: { ...off, arithmetic: trainer } };
      const check = new CanaryCheck(sampler, own);
      return sampler.load(manifest, (...what) => check.require(asked, ...what), never);
    };
    await assert.rejects(require('fp32', 'fp32'), /fp32 allows 0.001 and 0.0002/);
    await require('bf16', 'fp32');
    await require('fp32', 'bf16');
  });

  it('an adapter that the learner has rounded allows a larger difference, but not at the backend, which has its own', async () => {
    fetched = adapterOf(version, directory.config);
    await using sampler = await start(directory);
    const require = (format: 'F32' | 'BF16', kind: 'onnx' | 'tinker', by: number) => {
      const logprobs = canary.logprobs.map((logprob) => logprob - by);
      const adapter = { ...manifest.adapter!, format };
      const asked = { ...manifest, adapter, canary: { ...canary, logprobs } };
      const check = new CanaryCheck({ kind, engine: sampler.engine }, 'fp32');
      return sampler.load(manifest, (...what) => check.require(asked, ...what), never);
    };
    const { mean } = roundedAdapterBand;
    await require('BF16', 'onnx', 0.9 * mean);
    await assert.rejects(require('F32', 'onnx', 0.9 * mean), CanaryNotReproduced);
    await assert.rejects(require('BF16', 'tinker', 0.9 * mean), CanaryNotReproduced);
    await assert.rejects(
      require('BF16', 'onnx', mean + 3e-4),
      /fp32 with an adapter in BF16 allows 0\.\d+ and 0\.\d+\. /,
    );
  });

  it('a version without a canary passes without a certificate', async () => {
    const check = new CanaryCheck({ engine: 'none' }, 'fp32');
    const { canary: _, ...without } = manifest;
    await check.require(without, () => assert.fail('there is nothing to score'), never);
    assert.equal(check.certificate([version]), undefined);
  });
});
