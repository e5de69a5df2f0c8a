import { availableParallelism } from 'node:os';
import { z } from 'zod';
import { port, string, int } from '../shared/service/config-fields.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';

const key = z
  .string()
  .regex(/^tml-[\x21-\x7e]{4,}$/, 'expected tml- and at least 4 more characters, without blanks');

/** Where the embedded Tinker server finds and serves things; clients bring what to train. */
export const LocalBackendConfig = z
  .object({
    host: string.default('127.0.0.1').describe('address that the Tinker API is served on.'),
    port: port.default(10_610).describe('and its port; 0: any, see the log.'),
    apiKey: key.describe(
      'key that clients must send; it begins with tml-, or Tinker SDKs refuse it.',
    ),
    samplingApiKey: key
      .optional()
      .describe(
        'key that may only sample: it cannot train, save, load, list, download or delete. For actors.',
      ),
    modelDir: string
      .default(embeddedModelPath)
      .describe('Hugging Face directory of the base model.'),
    modelName: string.default('offbeat/base').describe('name under which clients ask for it.'),
    checkpointDir: string.default('checkpoints').describe('where saved weights are kept.'),
    threads: int
      .min(1)
      .max(256)
      .default(availableParallelism())
      .describe(
        'threads of training, and as many of sampling; results repeat for the same number.',
      ),
    healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
    healthPort: port.default(0).describe('and its port; 0: any, see the log.'),
  })
  .check(({ value, issues }) => {
    if (value.samplingApiKey !== value.apiKey) return;
    const message =
      'it is the same as --api-key, which may do everything; give it a key of its own';
    issues.push({ code: 'custom', input: value, path: ['samplingApiKey'], message });
  });
export type LocalBackendConfig = z.infer<typeof LocalBackendConfig>;
