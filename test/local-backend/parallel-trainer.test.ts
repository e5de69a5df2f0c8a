import assert from 'node:assert/strict';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { ParallelTrainer, parts } from '../../local-backend/parallel-trainer.js';
import { createRandom } from '../../shared/base/random.js';
import type { Gradients } from '../../shared/model/adamw.js';
import { rowsAtOnce, sessionThreads } from '../../shared/model/parameters.js';
import { Trainer } from '../../shared/model/trainer.js';
import type { Datum } from '../../shared/rl/datum.js';
import { LossName } from '../../shared/rl/losses.js';
import { tinyModel, warmAdapter } from '../support/tiny-model.js';

const random = createRandom('parallel trainer test');

/** A sequence with every input that a loss may read; a copy for each call, as a request has its own. */
function datum(length: number): Datum {
  const floats = (low: number, high: number) =>
    Float32Array.from({ length }, () => low + (high - low) * random.next());
  const tokens = () => Int32Array.from({ length }, () => random.int(22));
  return {
    tokens: tokens(),
    targetTokens: tokens(),
    inputs: { weights: floats(0, 1), logprobs: floats(-4, -2), advantages: floats(-1, 1) },
  };
}

describe('a trainer of several threads', () => {
  let model: Awaited<ReturnType<typeof tinyModel>>;
  let alone: Trainer;
  let parallel: ParallelTrainer;
  before(async () => {
    model = await tinyModel();
    alone = await Trainer.load(model, { threads: 1 });
    parallel = await ParallelTrainer.load(model, 3);
  });
  after(async () => {
    await parallel[Symbol.asyncDispose]();
    await model[Symbol.asyncDispose]();
  });

  const data = Array.from({ length: 90 }, () => datum(10 + random.int(20))); // three parts

  for (const loss of LossName.options) {
    it(`a trainer of three threads computes ${loss} as one of one thread does`, async () => {
      const adapter = warmAdapter(model.config, 1);
      const expected: Gradients = new Map();
      const found: Gradients = new Map();
      const a = await alone.forwardBackward(adapter, data, loss, { temperature: 0.9 }, expected);
      const b = await parallel.forwardBackward(adapter, data, loss, { temperature: 0.9 }, found);
      assert(Math.abs(a.lossSum - b.lossSum) < 1e-4 * (1 + Math.abs(a.lossSum)));
      assert.equal(b.logprobs.length, data.length);
      a.logprobs.forEach((logprobs, i) => {
        assertClose(b.logprobs[i]!, logprobs, 1e-5);
      });
      assert.deepEqual([...found.keys()], [...expected.keys()]);
      for (const [key, gradient] of expected) {
        const largest = Math.max(...gradient.map(Math.abs));
        assertClose(found.get(key)!, gradient, 1e-4 * largest);
      }
    });
  }

  it('a trainer of three threads scores data as one of one thread does, and leaves them as they are', async () => {
    const adapter = warmAdapter(model.config, 1);
    const before = structuredClone(data);
    const found = await parallel.forward(adapter, data, 0.8);
    const expected = await alone.forward(adapter, data, 0.8);
    assert.equal(found.length, expected.length);
    expected.forEach((logprobs, i) => {
      assertClose(found[i]!, logprobs, 1e-5);
    });
    assert.deepEqual(data, before);
  });

  it('a trainer of three threads gives the same bits for the same call', async () => {
    const adapter = warmAdapter(model.config, 1);
    const train = async () => {
      const gradients: Gradients = new Map();
      return {
        ...(await parallel.forwardBackward(adapter, data, 'cispo', {}, gradients)),
        gradients,
      };
    };
    assert.deepEqual(await train(), await train());
  });

  it('a trainer of three threads names a faulty datum by its place in the call, and trains the next call', async () => {
    const adapter = warmAdapter(model.config, 1);
    const faulty = data.with(80, { ...data[80]!, inputs: {} });
    const unknown = data.with(70, { ...data[70]!, tokens: data[70]!.tokens.map(() => 99) });
    const train = (some: readonly Datum[]) =>
      parallel.forwardBackward(adapter, some, 'cross_entropy', {}, new Map());
    await assert.rejects(train(faulty), /data\[80\] needs \d+ weights/);
    await assert.rejects(train(unknown), /token 99 of a vocabulary of 22/);
    assert.equal((await train(data)).logprobs.length, data.length);
  });

  it('a thread that begins later refuses another model than the one that trains, until it is put back', async () => {
    await using copied = await tinyModel();
    await using other = await tinyModel(1);
    await using trainer = await ParallelTrainer.load(copied, 2);
    const weights = join(copied.path, 'model.safetensors');
    const own = await readFile(weights);
    await copyFile(join(other.path, 'model.safetensors'), weights);
    const adapter = warmAdapter(copied.config, 1);
    for (let call = 0; call < 2; call++) {
      await assert.rejects(
        trainer.forward(adapter, data, 1),
        new RegExp(
          `${copied.path} has changed .* other content in model.safetensors; .* restart the server`,
        ),
      );
    }
    await writeFile(weights, own);
    const found = await trainer.forward(adapter, data, 1);
    found.forEach((logprobs, i) => {
      assert.equal(logprobs.length, data[i]!.tokens.length);
    });
  });

  it('only a small model is copied to every thread', () => {
    assert.equal(sessionThreads(model.config, 4), 1);
    assert.equal(sessionThreads({ ...model.config, vocabSize: 2_000_000 }, 4), 4);
  });

  it('only the rollouts of a large model are limited that are sampled together', () => {
    assert.equal(rowsAtOnce(model.config), Infinity);
    assert.equal(rowsAtOnce({ ...model.config, vocabSize: 2_000_000 }), 64);
  });
});

describe('the parts of a batch', () => {
  it('the parts of a batch keep its order, are not empty, and have about as many tokens each', () => {
    const lengths = fc.array(fc.integer({ min: 1, max: 2_000 }), { minLength: 1, maxLength: 60 });
    fc.assert(
      fc.property(lengths, fc.integer({ min: 1, max: 8 }), (some, count) => {
        const all = some.map((length) => ({ ...datum(1), tokens: new Int32Array(length) }));
        const found = parts(all, count);
        assert.deepEqual(found.flat(), all);
        assert(found.length <= count && found.every(({ length }) => length > 0));
        const tokens = found.map((part) => part.reduce((sum, one) => sum + one.tokens.length, 0));
        const total = tokens.reduce((a, b) => a + b);
        if (total < 1024) assert.equal(found.length, 1);
        const fair = total / Math.max(1, Math.min(count, Math.floor(total / 512)));
        assert(Math.max(...tokens) <= fair + Math.max(...some));
      }),
    );
  });
});

function assertClose(found: Float32Array, expected: Float32Array, tolerance: number): void {
  assert.equal(found.length, expected.length);
  expected.forEach((value, i) => {
    assert(Math.abs(found[i]! - value) <= tolerance, `${i}: ${found[i]}, expected ${value}`);
  });
}
