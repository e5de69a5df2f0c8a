import { hostname } from 'node:os';
import { z } from 'zod';
import { RunName } from '../shared/wire/run-config.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';

const port = z.coerce.number().int().min(0).max(65_535).default(0); // 0: any; the log says which

/** Where a replica finds things. What is trained, it reads from the run's configuration in NATS. */
export const RewardServiceConfig = z.object({
  natsUrl: z.string().min(1).default('nats://127.0.0.1:4222'),
  run: RunName,
  name: z.string().min(1).max(128).default(`${hostname()}-${process.pid}`.slice(-128)),
  modelDir: z.string().min(1).default(embeddedModelPath), // for its tokenizer
  datasetPath: z.string().min(1).optional(), // where this machine keeps the run's problem file
  healthHost: z.string().min(1).default('127.0.0.1'),
  healthPort: port,
  httpHost: z.string().min(1).default('127.0.0.1'),
  httpPort: port, // of POST /score
});
export type RewardServiceConfig = z.infer<typeof RewardServiceConfig>;
