import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import { Scorer } from '../../../shared/model/scorer.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { goldenFolder } from '../../support/golden.js';

/** What transformers computed: see test/compat/golden/base_model.py. */
const Golden = z.object({
  model: z.literal('Qwen3ForCausalLM'),
  cases: z.array(
    z.object({ text: z.string(), tokens: z.array(z.int()), logprobs: z.array(z.number()) }),
  ),
});

describe('the model in the repository', async () => {
  const directory = await readModelDirectory(embeddedModelPath);
  const text = readFileSync(`${goldenFolder}base-model/logprobs.json`, 'utf8');
  const { cases } = Golden.parse(JSON.parse(text));

  it('the embedded model has the Qwen3 architecture and at most 8 MB', () => {
    assert.equal(directory.config.family, 'qwen3');
    assert.ok(statSync(join(embeddedModelPath, 'model.safetensors')).size <= 8e6);
  });

  it('the embedded model has the tokens that transformers reads from its tokenizer.json', async () => {
    const tokenizer = await loadTokenizer(directory);
    for (const { text, tokens } of cases) {
      assert.deepEqual([...tokenizer.encode(text)], tokens);
      assert.equal(tokenizer.decode(tokens), text);
    }
  });

  it('the embedded model gives each token the logprob that transformers gives it', async () => {
    const scorer = await Scorer.load(directory, { threads: 1 });
    const sequences = cases.map(({ tokens }) => Int32Array.from(tokens));
    const found = await scorer.logprobs(
      sequences.map((tokens) => tokens.subarray(0, -1)),
      sequences.map((tokens) => tokens.subarray(1)),
      undefined,
      1,
    );
    for (const [i, { logprobs }] of cases.entries()) {
      assert.equal(found[i]!.length, logprobs.length);
      found[i]!.forEach((logprob, j) => {
        assert.ok(Math.abs(logprob - logprobs[j]!) < 1e-4, `${logprob} is not ${logprobs[j]}`);
      });
    }
  });
});
