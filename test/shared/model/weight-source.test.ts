import assert from 'node:assert/strict';
import { rename, symlink, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { it } from 'node:test';
import type { Gradients } from '../../../shared/model/adamw.js';
import { Decoder } from '../../../shared/model/decoder.js';
import { Graph } from '../../../shared/model/graph/graph.js';
import { floatOutput, floats, Session } from '../../../shared/model/graph/session.js';
import { readWeights } from '../../../shared/model/model-weights.js';
import type { GroupRequest } from '../../../shared/model/rollout-draft.js';
import { encodeHeader, toBfloat16, type Tensor } from '../../../shared/model/safetensors.js';
import { Trainer } from '../../../shared/model/trainer.js';
import { frozen } from '../../../shared/model/weight-source.js';
import { tinyModel, warmAdapter } from '../../support/tiny-model.js';

const request: GroupRequest = {
  prompt: Int32Array.of(3, 4, 5, 6, 7),
  count: 6,
  temperature: 0.8,
  maxTokens: 10,
  stopTokenIds: [1],
  seed: 5,
};

for (const isSmallModel of [true, false]) {
  for (const dtype of ['F32', 'BF16'] as const) {
    it(`a ${isSmallModel ? 'small' : 'large'} model samples from weights mapped from a ${dtype} file behind a link as from weights in memory`, async () => {
      await using directory = await tinyModel(1);
      const file = join(directory.path, 'model.safetensors');
      if (dtype === 'BF16') await writeFile(file, inBfloat16(await readWeights(directory)));
      await rename(file, join(directory.path, 'blob'));
      await symlink('blob', file); // as the hub's cache has it
      const { config } = directory;
      const weights = await readWeights(directory);
      const policy = { version: 0, adapter: warmAdapter(config, 1) };
      const path = relative(process.cwd(), directory.path);
      const mapped = Decoder.of({ path, config }, { threads: 1, isSmallModel });
      const inMemory = new Decoder(
        config,
        () => Promise.resolve(frozen(weights)),
        1,
        undefined,
        isSmallModel,
      );
      assert.deepEqual(
        await mapped.sampleGroup(request, () => policy),
        await inMemory.sampleGroup(request, () => policy),
      );
    });
  }
}

it('a session that shares weights reads them where they are, also after they have changed', async () => {
  const graph = new Graph();
  const x = graph.input('x', 'float32', [1, 2]);
  const data = Float32Array.of(1, 2, 3, 4);
  graph.output('y', frozen(new Map([['w', { dims: [2, 2], data }]]))(graph).product(x, 'w'));
  const session = await Session.create(graph, 1, { sharesWeights: true });
  const run = async () => [
    ...floatOutput(await session.run({ x: floats(Float32Array.of(1, 10), [1, 2]) }), 'y'),
  ];
  assert.deepEqual(await run(), [21, 43]);
  data[3] = 5;
  assert.deepEqual(await run(), [21, 53]);
});

it('a large model, whose sessions share its weights, has the logprobs and gradients of a small one', async () => {
  await using directory = await tinyModel(1);
  const { config } = directory;
  const weights = await readWeights(directory);
  const adapter = warmAdapter(config, 1);
  const tokens = Int32Array.of(3, 4, 5, 6, 7, 8);
  const datum = {
    tokens,
    targetTokens: tokens.map((token) => token + 1),
    inputs: {
      logprobs: new Float32Array(6).fill(-2),
      advantages: Float32Array.of(0, 0, 1, -1, 2, 1),
    },
  };
  const [small, large] = await Promise.all(
    [true, false].map(async (isSmallModel) => {
      const trainer = new Trainer(config, weights, 1, isSmallModel);
      const gradients: Gradients = new Map();
      const data = [datum, datum];
      const { lossSum, logprobs } = await trainer.forwardBackward(
        adapter,
        data,
        'cispo',
        {},
        gradients,
      );
      const scored = await trainer.forward(adapter, data, 1);
      const flat = [...gradients.values(), ...logprobs, ...scored].flatMap((values) => [...values]);
      return [lossSum, ...flat];
    }),
  );
  assert.equal(large!.length, small!.length);
  large!.forEach((value, i) => {
    assert.ok(
      Math.abs(value - small![i]!) <= 1e-5 * (1 + Math.abs(value)),
      `${value} against ${small![i]}`,
    );
  });
});

function inBfloat16(weights: ReadonlyMap<string, Tensor>): Buffer {
  const head = encodeHeader(
    [...weights].map(([name, { dims }]) => [name, { dtype: 'BF16', dims }]),
  );
  const data = [...weights.values()].map((weight) => Buffer.from(toBfloat16(weight.data).buffer));
  return Buffer.concat([head, ...data]);
}
