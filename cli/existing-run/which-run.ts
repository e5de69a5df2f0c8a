import { z } from 'zod';
import { natsAddress, string } from '../../shared/service/config-fields.js';
import { RunName } from '../../shared/wire/run-name.js';

/** The flags that say which run is meant, and where its store is. */
export const whichRun = {
  run: RunName.describe('the run: its folder runs/TEXT, or its name on the server at --nats-url.'),
  natsUrl: natsAddress
    .optional()
    .describe("the NATS server that holds the run, if not one of the run's own."),
  natsKeys: string
    .optional()
    .describe('folder with the keys to that server, as offbeat nats-config writes it.'),
  runsDir: string.default('runs').describe('folder of the runs of this machine.'),
};
export type WhichRun = z.infer<z.ZodObject<typeof whichRun>>;
