import { z } from 'zod';
import { type Environment, loadConfig } from '../../shared/service/config.js';
import { UserError } from '../../shared/base/errors.js';
import { whichRun } from '../existing-run/which-run.js';

/** Where the dead letters are, and how to speak of them. */
export const DeadLettersConfig = z.object({
  ...whichRun,
  all: z.boolean().default(false).describe('replay or purge: every letter, instead of numbers.'),
  force: z
    .boolean()
    .default(false)
    .describe('replay: also what nobody waits for any more; the learner lets it go.'),
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
  env: Environment,
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
