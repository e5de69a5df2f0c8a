import { hostname } from 'node:os';
import { z } from 'zod';
import { port, real, text, whole } from '../../shared/service/config-fields.js';
import { natsSettings } from '../../shared/broker/access.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { RunName } from '../../shared/wire/run-name.js';

/** Which run this is, and where to find things. */
export const Connections = z.object({
  run: RunName.describe('name of the run.'),
  name: text
    .max(128)
    .default(() => `${hostname()}-${process.pid}`)
    .describe('who holds the lease to train; a restart under one name takes over at once.'),
  ...natsSettings,
  streamReplicas: whole
    .refine((count) => [1, 3, 5].includes(count), 'expected 1, 3 or 5')
    .default(1)
    .describe('servers of a NATS cluster that keep each stream of the run.'),
  leaseSeconds: real
    .min(1)
    .default(30)
    .describe(
      'after how long what a dead actor or reward service had in hand goes to another; after half of it ' +
        'another learner may train in place of a dead one.',
    ),
  ticketDeadlineSeconds: real
    .min(1)
    .max(86_400)
    .optional()
    .describe(
      'after how long in the hands of actors a ticket is taken from them and issued again; by default 20 times ' +
        'what half of the tickets take, at least 2 times --lease-seconds, and 600 while that is not known.',
    ),
  backendUrl: z
    .url()
    .default('http://127.0.0.1:10610')
    .describe('a Tinker server: TuFT or the local backend.'),
  apiKey: text.default('tml-local').describe('key for --backend-url.'),
  checkpointDir: text
    .optional()
    .describe("the backend's checkpoint directory, if it is mounted here under another path."),
  modelDir: text
    .default(embeddedModelPath)
    .describe('Hugging Face directory of the model, which actors must hold too.'),
  modelName: text
    .optional()
    .describe('the model as the backend calls it; by default the only one that it serves.'),
  runDir: text.optional().describe('folder of metrics.jsonl and summary.json; runs/<run>.'),
  startPatienceSeconds: real
    .min(0)
    .default(10)
    .describe('how long NATS, and then the backend, may be away when the learner starts.'),
  stoppedExitCode: whole
    .min(0)
    .max(255)
    .default(0)
    .describe(
      'exit code when a signal stopped the run before its end; a Kubernetes Job takes 0 for its end.',
    ),
  healthHost: text.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
  healthPort: port.default(0).describe('and its port; 0: any, see the log.'),
});
