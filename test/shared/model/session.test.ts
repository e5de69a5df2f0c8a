import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { Decoder } from '../../../shared/model/decoder.js';
import { Graph } from '../../../shared/model/graph/graph.js';
import { add } from '../../../shared/model/graph/operators.js';
import {
  floats,
  integers,
  OrtTensor,
  release,
  Session,
} from '../../../shared/model/graph/session.js';
import { createAdapter, type Adapter } from '../../../shared/model/lora.js';
import {
  embeddedModelPath,
  readModelDirectory,
  type ModelDirectory,
} from '../../../shared/model/model-directory.js';
import { Trainer } from '../../../shared/model/trainer.js';

it('integers of either sign become int64 elements', () => {
  const { data, dims } = integers([7, -1, 0, -2_147_483_648, 2_147_483_647], [5]);
  assert.deepEqual([...(data as BigInt64Array)], [7n, -1n, 0n, -2_147_483_648n, 2_147_483_647n]);
  assert.deepEqual(dims, [5]);
  assert.deepEqual([...(integers(Float32Array.of(3, -4), [2]).data as BigInt64Array)], [3n, -4n]);
});

it('released tensors are empty, and those that are kept and share their memory are not', async () => {
  const graph = new Graph();
  const x = graph.input('x', 'float32', [2]);
  graph.output('sum', add(graph, x, x));
  const session = await Session.create(graph, 1);
  const input = floats(Float32Array.of(1, 2), [2]);
  const run = async () => (await session.run({ x: input }))['sum'] as OrtTensor;
  const [first, second] = [await run(), await run()];
  const again = new OrtTensor('float32', second.data as Float32Array, [1, 2]);
  release([first, first, second], [again]);
  assert.equal(first.data.length, 0);
  assert.deepEqual([...again.data], [2, 4]);
});

describe('the memory of what the model computes is freed without waiting for garbage collection', () => {
  let directory: ModelDirectory;
  let adapter: Adapter;
  before(async () => {
    directory = await readModelDirectory(embeddedModelPath);
    adapter = createAdapter(directory.config, {
      ...{ rank: 32, alpha: 64, attn: true, mlp: true },
      seed: 0,
    });
  });

  /** What a call adds to the memory of arrays, in MB, after one that creates the sessions. */
  async function growth(call: (isFirst: boolean) => Promise<unknown>): Promise<number> {
    await call(true);
    const { arrayBuffers } = process.memoryUsage();
    await call(false);
    return (process.memoryUsage().arrayBuffers - arrayBuffers) / 1e6;
  }

  it('memory is freed after each token that is sampled, whose caches are 11 MB here', async () => {
    const decoder = Decoder.of(directory, { threads: 1 });
    const prompt = Int32Array.from({ length: 10 }, (_, i) => 2 + i);
    const request = { prompt, count: 64, temperature: 1, stopTokenIds: [], seed: 1 };
    const sample = (isFirst: boolean) =>
      decoder.sampleGroup({ ...request, maxTokens: isFirst ? 2 : 13 }, () => ({
        version: 0,
        adapter,
      }));
    assert.ok((await growth(sample)) < 3);
  });

  it('memory is freed after each batch that is trained, whose gradients are 10 MB here', async () => {
    const trainer = await Trainer.load(directory, { threads: 1 });
    const tokens = Int32Array.from({ length: 60 }, (_, i) => 2 + (i % 20));
    const data = Array.from({ length: 64 }, (_, i) => ({
      ...{ tokens: tokens.map((token) => 2 + ((token + i) % 20)), targetTokens: tokens },
      inputs: { weights: new Float32Array(60).fill(1) },
    }));
    const gradients = new Map<string, Float32Array>();
    const train = (isFirst: boolean) =>
      trainer.forwardBackward(
        adapter,
        isFirst ? data.slice(0, 1) : data,
        'cross_entropy',
        {},
        gradients,
      );
    assert.ok((await growth(train)) < 3);
  });
});
