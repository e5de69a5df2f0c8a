import { availableParallelism } from 'node:os';
import { z } from 'zod';
import { port, string, int, number } from '../shared/service/config-fields.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';

const key = z
  .string()
  .regex(/^tml-[\x21-\x7e]{4,}$/, 'expected tml- and at least 4 more characters, without blanks');

/** Settings of the embedded Tinker server. Clients choose what to train. */
export const LocalBackendConfig = z
  .object({
    host: string.default('127.0.0.1').describe('address of the Tinker API.'),
    port: port.default(10_610).describe('port of the Tinker API; 0 picks a free one (logged).'),
    apiKey: key.describe(
      'key that clients must send; it must begin with tml-, or Tinker SDKs reject it.',
    ),
    samplingApiKey: key
      .optional()
      .describe(
        'key for actors, which permits sampling only: not training, saving, loading, listing, downloading or deleting.',
      ),
    modelDir: string
      .default(embeddedModelPath)
      .describe('Hugging Face directory of the base model.'),
    modelName: string
      .default('offbeat/base')
      .describe('name by which clients request the base model.'),
    loraAlpha: number
      .positive()
      .optional()
      .describe(
        'alpha of new LoRA adapters, whose update is scaled by alpha / rank; by default twice the rank, as in TuFT.',
      ),
    checkpointDir: string.default('checkpoints').describe('directory of saved weights.'),
    threads: int
      .min(1)
      .max(256)
      .default(availableParallelism())
      .describe(
        'threads for training, and as many for sampling, if the model is large enough to use them; results are reproducible for the same number.',
      ),
    healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
    healthPort: port.default(0).describe('health port; 0 picks a free one (logged).'),
  })
  .check(({ value, issues }) => {
    if (value.samplingApiKey !== value.apiKey) return;
    const message = 'it equals --api-key, which permits everything; choose a different key';
    issues.push({ code: 'custom', input: value, path: ['samplingApiKey'], message });
  });
export type LocalBackendConfig = z.infer<typeof LocalBackendConfig>;
