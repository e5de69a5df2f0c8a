import { hostname } from 'node:os';
import { z } from 'zod';
import { port, number, string, int } from '../../shared/service/config-fields.js';
import { natsSettings } from '../../shared/broker/access.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { RunName } from '../../shared/wire/run-name.js';

/** Which run this is, and where to find things. */
export const Connections = z.object({
  run: RunName.describe('name of the run.'),
  name: string
    .max(128)
    .default(() => `${hostname()}-${process.pid}`)
    .describe('who holds the lease to train; a restart under one name takes over at once.'),
  ...natsSettings,
  streamReplicas: int
    .refine((count) => [1, 3, 5].includes(count), 'expected 1, 3 or 5')
    .default(1)
    .describe('servers of a NATS cluster that keep each stream of the run.'),
  leaseSeconds: number
    .min(1)
    .default(30)
    .describe(
      'after how long what a dead actor or reward service had in hand goes to another; after half of it ' +
        'another learner may train in place of a dead one.',
    ),
  ticketDeadlineSeconds: number
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
  apiKey: string.default('tml-local').describe('key for --backend-url.'),
  checkpointDir: string
    .optional()
    .describe("the backend's checkpoint directory, if it is mounted here under another path."),
  modelDir: string
    .default(embeddedModelPath)
    .describe('Hugging Face directory of the model, which actors must hold too.'),
  modelName: string
    .optional()
    .describe('the model as the backend calls it; by default the only one that it serves.'),
  runDir: string.optional().describe('folder of metrics.jsonl and summary.json; runs/<run>.'),
  startPatienceSeconds: number
    .min(0)
    .default(10)
    .describe('how long NATS, and then the backend, may be away when the learner starts.'),
  stoppedExitCode: int
    .min(0)
    .max(255)
    .default(0)
    .describe(
      'exit code when a signal stopped the run before its end; a Kubernetes Job takes 0 for its end.',
    ),
  healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
  healthPort: port.default(0).describe('and its port; 0: any, see the log.'),
});
