import assert from 'node:assert/strict';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { checkModelDirectory } from '../../../shared/model/model-directory.js';
import { readWeights } from '../../../shared/model/model-weights.js';
import { encodeSafetensors, type Tensor } from '../../../shared/model/safetensors.js';
import { tinyModel } from '../../support/tiny-model.js';

const embedding = 'model.embed_tokens.weight';

describe('the weights of a model directory', () => {
  let model: Awaited<ReturnType<typeof tinyModel>>;
  let path: string;
  let weights: Map<string, Tensor>;
  beforeEach(async () => {
    model = await tinyModel();
    path = model.path;
    weights = await readWeights(model);
  });
  afterEach(() => model[Symbol.asyncDispose]());

  const write = (file: string, tensors: Iterable<[string, Tensor]>) =>
    writeFile(join(path, file), encodeSafetensors(new Map(tensors)));
  const writeIndex = (weightMap: Record<string, string>) =>
    writeFile(
      join(path, 'model.safetensors.index.json'),
      JSON.stringify({ weight_map: weightMap }),
    );

  it('the weights of a model directory may be in shards', async () => {
    await rm(join(path, 'model.safetensors'));
    const all = [...weights];
    await write('a.safetensors', all.slice(0, 5));
    await write('b.safetensors', all.slice(5));
    const shardOf = (i: number) => (i < 5 ? 'a.safetensors' : 'b.safetensors');
    await writeIndex(Object.fromEntries(all.map(([name], i) => [name, shardOf(i)])));
    assert.deepEqual(await readWeights(await checkModelDirectory(path)), weights);
  });

  it('the weights of a model directory may contain a tied head again, which is then not read', async () => {
    await write('model.safetensors', [...weights, ['lm_head.weight', weights.get(embedding)!]]);
    assert.deepEqual(await readWeights(await checkModelDirectory(path)), weights);
  });

  const refusals: [title: string, spoil: () => Promise<void>, complaint: RegExp][] = [
    [
      'they are cut short',
      async () => {
        const file = join(path, 'model.safetensors');
        await writeFile(file, (await readFile(file)).subarray(0, -1));
      },
      /model\.safetensors is not a valid safetensors file: tensor .* download the model again/,
    ],
    [
      'some are missing',
      () => write('model.safetensors', [...weights].slice(1)),
      /lacks 1 weights, first model\.embed_tokens\.weight; download/,
    ],
    [
      'one has another shape than config.json makes it',
      () =>
        write('model.safetensors', [
          ...weights,
          ['model.norm.weight', { dims: [3], data: new Float32Array(3) }],
        ]),
      /model\.norm\.weight has shape \[3\], but config\.json makes it \[16\]/,
    ],
    [
      'there are none in this format',
      () => rm(join(path, 'model.safetensors')),
      /has no model\.safetensors; name a complete model directory, whose weights are safetensors/,
    ],
    [
      'an index is not one',
      async () => {
        await rm(join(path, 'model.safetensors'));
        await writeFile(join(path, 'model.safetensors.index.json'), '{');
      },
      /index\.json is no index of shards .* download the model again/,
    ],
    [
      'an index names a shard that is not there',
      async () => {
        await rm(join(path, 'model.safetensors'));
        await writeIndex({ x: 'a.safetensors' });
      },
      /no such file.*a\.safetensors/,
    ],
    [
      'an index leaves the directory',
      async () => {
        await rm(join(path, 'model.safetensors'));
        await writeIndex({ x: '../secret' });
      },
      /names \.\.\/secret, which is outside/,
    ],
    [
      'a tied head differs from the embedding',
      () => {
        const { dims, data } = weights.get(embedding)!;
        const other = { dims, data: data.with(data.length - 1, 7) };
        return write('model.safetensors', [...weights, ['lm_head.weight', other]]);
      },
      /config\.json: tie_word_embeddings is true, but lm_head\.weight differs from .*; set it to/,
    ],
  ];
  for (const [title, spoil, complaint] of refusals) {
    it(`the weights of a model directory are refused, before they are read, if ${title}`, async () => {
      await spoil();
      await assert.rejects(checkModelDirectory(path), { name: 'UserError', message: complaint });
    });
  }
});
