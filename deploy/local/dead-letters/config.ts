import { z } from 'zod';
import { loadConfig } from '../../../shared/config.js';
import { UserError } from '../../../shared/errors.js';
import { RunName } from '../../../shared/wire/run-config.js';

/** Where the dead letters are, and how to speak of them. */
export const DeadLettersConfig = z.object({
  run: RunName.describe('the run: its folder runs/TEXT, or its name on the server at --nats-url.'),
  all: z.boolean().default(false).describe('replay or purge: every letter, instead of numbers.'),
  force: z
    .boolean()
    .default(false)
    .describe('replay: also what nobody waits for any more; the learner lets it go.'),
  natsUrl: z
    .url({ protocol: /^(nats|tls)$/, error: 'expected nats://host:port' })
    .optional()
    .describe("the NATS server that holds the run, if not one of the run's own."),
  natsKeys: z
    .string()
    .min(1)
    .optional()
    .describe('folder with the keys to that server, as offbeat nats-config writes it.'),
  runsDir: z.string().min(1).default('runs').describe('folder of the runs of this machine.'),
  json: z.boolean().default(false).describe('standard output is JSON.'),
});
export type DeadLettersConfig = z.infer<typeof DeadLettersConfig>;

export const deadLettersService = 'offbeat-dead-letters';

export const actions = ['list', 'show', 'replay', 'purge'] as const;
export type Action = (typeof actions)[number];

export interface DeadLettersRequest {
  readonly action: Action;
  readonly numbers: readonly number[]; // of letters, as `list` shows them
  readonly config: DeadLettersConfig;
}

/** Reads `replay 3 4 --run NAME`. @throws {UserError} */
export function loadRequest(
  [word, ...rest]: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): DeadLettersRequest {
  const action = actions.find((name) => name === word);
  if (action === undefined) {
    const found = word === undefined ? 'an action is missing' : `unknown action ${word}`;
    throw new UserError(`${found}; one of ${actions.join(', ')} is expected`);
  }
  const firstFlag = rest.findIndex((each) => !/^\d+$/.test(each));
  const words = firstFlag === -1 ? rest : rest.slice(0, firstFlag);
  const config = loadConfig(DeadLettersConfig, deadLettersService, rest.slice(words.length), env);
  const numbers = words.map(Number);
  const choosesNone = numbers.length === 0 && !config.all;
  if ((action === 'replay' || action === 'purge') && choosesNone) {
    throw new UserError(`${action} which? Give the numbers that list shows, or --all`);
  }
  if (action === 'show' && numbers.length !== 1) {
    throw new UserError('show needs the number of one letter, as list shows it');
  }
  if (numbers.length > 0 && (config.all || action === 'list')) {
    throw new UserError('numbers and all letters at once: leave out one of the two');
  }
  return { action, numbers, config };
}
