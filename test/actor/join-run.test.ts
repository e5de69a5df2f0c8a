import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { joinRun } from '../../actor/join-run.js';
import { openTask } from '../../shared/tasks/registry.js';
import { countdownSpec } from '../support/countdown-task.js';
import { runConfig } from '../support/messages.js';
import { tinyModel } from '../support/tiny-model.js';

describe('joining a run', () => {
  it('an actor without the weights ends answers at the same tokens as one that has them', async () => {
    await using model = await tinyModel();
    await writeFile(join(model.path, 'generation_config.json'), '{"eos_token_id":[1,2]}');
    await rm(join(model.path, 'model.safetensors'));
    const task = countdownSpec();
    const { digest: datasetDigest } = await openTask(task).load();
    const { tokenizer, config } = await joinRun(runConfig({ task, datasetDigest }), {
      ...{ modelDir: model.path, sampler: 'vllm', datasetPath: undefined },
    });
    assert.deepEqual(
      [tokenizer.eosTokenIds, config.eosTokenIds],
      [
        [1, 2],
        [1, 2],
      ],
    );
  });
});
