import { hostname } from 'node:os';
import { z } from 'zod';
import { port, text } from '../shared/config-fields.js';
import { natsSettings } from '../shared/broker/access.js';
import { RunName } from '../shared/wire/run-config.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';

/** Where a replica finds things. What is trained, it reads from the run's configuration in NATS. */
export const RewardServiceConfig = z.object({
  ...natsSettings,
  run: RunName.describe('name of the run whose rollouts it scores.'),
  name: text
    .max(128)
    .default(`${hostname()}-${process.pid}`.slice(-128))
    .describe('name of this replica, told with each score; by default host and pid.'),
  modelDir: text
    .default(embeddedModelPath)
    .describe(
      "Hugging Face directory of the run's model, which must be the learner's to the byte.",
    ),
  datasetPath: text
    .optional()
    .describe("the run's data, if it is here in a file under another path than the learner's."),
  healthHost: text.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
  healthPort: port.default(0).describe('and its port; 0: any, see the log.'),
  httpHost: text.default('127.0.0.1').describe('address of POST /score.'),
  httpPort: port.default(0).describe('and its port; 0: any, see the log.'),
});
export type RewardServiceConfig = z.infer<typeof RewardServiceConfig>;
