import { availableParallelism } from 'node:os';
import { z } from 'zod';
import { embeddedModelPath } from '../../shared/model/model-directory.js';

const port = z.coerce.number().int().min(0).max(65_535);

/** Where the embedded Tinker server finds and serves things; clients bring what to train. */
export const LocalBackendConfig = z.object({
  host: z.string().min(1).default('127.0.0.1'),
  port: port.default(10_610), // 0: any
  apiKey: z
    .string()
    .regex(
      /^tml-[\x21-\x7e]{4,}$/,
      'expected tml- and at least 4 more characters, as the SDK sends',
    ),
  modelDir: z.string().min(1).default(embeddedModelPath), // a Hugging Face model directory
  modelName: z.string().min(1).default('offbeat/base'), // as clients ask for it
  checkpointDir: z.string().min(1).default('checkpoints'),
  threads: z.coerce.number().int().min(1).max(256).default(availableParallelism()), // fixed: results depend on it
  healthHost: z.string().min(1).default('127.0.0.1'),
  healthPort: port.default(0), // 0: any
});
export type LocalBackendConfig = z.infer<typeof LocalBackendConfig>;
