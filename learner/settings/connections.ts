import { hostname } from 'node:os';
import { z } from 'zod';
import { port, number, string, int } from '../../shared/service/config-fields.js';
import { natsSettings } from '../../shared/broker/access.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { RunName } from '../../shared/wire/run-name.js';

/** The run's name, and where NATS, the backend and the files are. */
export const Connections = z.object({
  run: RunName.describe('name of the run.'),
  name: string
    .max(128)
    .default(() => `${hostname()}-${process.pid}`)
    .describe(
      'name of this learner as holder of the leader lease; a restart under the same name takes over at once.',
    ),
  ...natsSettings,
  streamReplicas: int
    .refine((count) => [1, 3, 5].includes(count), 'expected 1, 3 or 5')
    .default(1)
    .describe('servers of a NATS cluster that keep each stream of the run.'),
  leaseSeconds: number
    .min(1)
    .default(30)
    .describe(
      'seconds until the work of a dead actor or reward service is redelivered to another; after half of them ' +
        'another learner may replace a dead one.',
    ),
  ticketDeadlineSeconds: number
    .min(1)
    .max(86_400)
    .optional()
    .describe(
      'seconds until a ticket that an actor holds is withdrawn and issued again; by default 20 times the median ' +
        'over actors of the median hold time of each, at least 2 times --lease-seconds, and 600 until that median is known.',
    ),
  backendUrl: z
    .url()
    .default('http://127.0.0.1:10610')
    .describe('URL of a Tinker server: TuFT or the local backend.'),
  apiKey: string.default('tml-local').describe('key for --backend-url.'),
  checkpointDir: string
    .optional()
    .describe(
      "path under which the backend's checkpoint directory is mounted here, if it differs.",
    ),
  modelDir: string
    .default(embeddedModelPath)
    .describe('Hugging Face directory of the model; every actor needs the same model.'),
  modelName: string
    .optional()
    .describe("the backend's name for the model; by default the only model that it serves."),
  runDir: string
    .optional()
    .describe('folder of metrics.jsonl and summary.json; default runs/<run>.'),
  startPatienceSeconds: natsSettings.startPatienceSeconds.describe(
    'seconds to wait for NATS, and then for the backend, when the learner starts; a backend that it loses later gets at least 600.',
  ),
  stopPatienceSeconds: number
    .min(1)
    .max(86_400)
    .default(25)
    .describe(
      'seconds that a stopped learner may take to finish its step and to save a checkpoint; 300 under `offbeat up`. ' +
        'Whatever kills it after SIGTERM has to wait longer.',
    ),
  stoppedExitCode: int
    .min(0)
    .max(255)
    .default(0)
    .describe(
      'exit code when a signal stopped the run before its end; a Kubernetes Job counts 0 as finished.',
    ),
  healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
  healthPort: port.default(0).describe('health port; 0 picks a free one (logged).'),
});
