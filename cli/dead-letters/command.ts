import { z } from 'zod';
import { flagsOf, loadConfig, type Environment } from '../../shared/service/config.js';
import { UserError } from '../../shared/base/errors.js';
import { nearest } from '../../shared/base/nearest.js';
import { whichRun, findRun } from '../existing-run/find-run.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { DeadLetter } from '../../shared/broker/dead-letters.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { printable, printableJson } from '../../shared/base/printable.js';
import { issuedBelow, ticketBound } from '../../shared/rl/capacity.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { readStore } from '../existing-run/read-store.js';
import { takeLead } from '../existing-run/take-lead.js';
import { ensureNatsServer } from '../nats-server/ensure.js';
import { shortCommand } from '../processes/stop-signals.js';
import { type TicketFacts, entriesOf, type Entry, listText, showing } from './text.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

/** Where the dead letters are, and how to print them. */
export const DeadLettersConfig = z.object({
  ...whichRun,
  all: z.boolean().default(false).describe('replay or purge: every letter, instead of numbers.'),
  force: z
    .boolean()
    .default(false)
    .describe('replay: also messages whose tickets have ended; the learner ignores them.'),
  json: z.boolean().default(false).describe('standard output is JSON.'),
});
export type DeadLettersConfig = z.infer<typeof DeadLettersConfig>;

export const deadLettersService = 'offbeat-dead-letters';

const actions = ['list', 'show', 'replay', 'purge'] as const;
type Action = (typeof actions)[number];

interface DeadLettersRequest {
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
    const isMissing = word === undefined || word.startsWith('-');
    const found = isMissing ? 'an action is missing' : `unknown action ${word}`;
    const meant = isMissing ? undefined : nearest(word, actions);
    throw new UserError(
      meant === undefined
        ? `${found}; one of ${actions.join(', ')} is expected first`
        : `${found}; did you mean ${meant}?`,
    );
  }
  const { words, flags } = separated(rest);
  const odd = words.find((each) => !/^\d+$/.test(each));
  if (odd !== undefined) {
    throw new UserError(`${odd} is not the number of a letter, as list shows it`);
  }
  const config = loadConfig(DeadLettersConfig, deadLettersService, flags, env);
  const numbers = words.map(Number);
  const choosesNone = numbers.length === 0 && !config.all;
  if ((action === 'replay' || action === 'purge') && choosesNone) {
    throw new UserError(`${action} which? Give the numbers that list shows, or --all`);
  }
  if (action === 'show' && numbers.length !== 1) {
    throw new UserError('show needs the number of one letter, as list shows it');
  }
  if (numbers.length > 0 && (config.all || action === 'list')) {
    throw new UserError('numbers cannot be combined with --all or list: leave out one of the two');
  }
  return { action, numbers, config };
}

/** The words that are no flags, which may stand before, between and after flags, and the flags with their values. */
function separated(rest: readonly string[]): { words: string[]; flags: string[] } {
  const valued = flagsOf(DeadLettersConfig.shape).filter(({ isSwitch }) => !isSwitch);
  const takesNext = new Set(valued.map(({ name }) => `--${name}`));
  const isFlag = (word: string, i: number) =>
    word.startsWith('-') || takesNext.has(rest[i - 1] ?? '');
  return { words: rest.filter((word, i) => !isFlag(word, i)), flags: rest.filter(isFlag) };
}

export function deadLettersHelp(): string {
  return `offbeat dead-letters: the messages that a run gave up, with the reasons.

  list              number, time, stage that gave it up, ticket and reason of each letter
  show NUMBER       one letter with its message
  replay NUMBER…    publishes messages again to their queues; no learner may train meanwhile
                    (letters that are not from a queue of their stage can only be purged)
  purge NUMBER…     deletes letters, except those that the next learner needs

The run may be over, stopped or training; a run's own nats-server is started if necessary.

${describeFlags(DeadLettersConfig.shape, deadLettersService)}
`;
}

interface Letters {
  readonly broker: Broker;
  readonly request: DeadLettersRequest;
  readonly facts: TicketFacts;
  readonly chosen: readonly Entry[];
}

/** The outcome of replaying or purging one letter. */
interface Outcome {
  readonly number: number;
  readonly isDone: boolean;
  readonly why: string;
}

/**
 * @returns the exit code: 0 if every letter was processed, 1 if some were left unchanged, the
 *   signal's code after Ctrl-C.
 * @throws {UserError} for an unknown run or letter, or while a learner trains.
 */
export async function deadLetters(argv: readonly string[], env: Environment): Promise<number> {
  const request = loadRequest(argv, env);
  const { config, action } = request;
  const found = await findRun(config);
  return shortCommand('dead-letters', 'stopping', async ({ stop, folder, log }) => {
    const { stop: signal, hurry } = stop;
    const natsBinary = () => ensureNatsServer({ env, report: printError, signal });
    const role = action === 'replay' || action === 'purge' ? 'operator' : 'observer';
    const place = { found, natsBinary, deadlineMs: 60_000, logFolder: folder };
    const store = { ...place, command: 'dead-letters', signal, hurry, log, role } as const;
    return await readStore(store, async (broker) => {
      if (!(await broker.isThere())) {
        throw new UserError(`the NATS server knows no run ${config.run}`);
      }
      if (action === 'replay') {
        return printOutcomes(config.json, await replay(broker, request, signal));
      }
      const letters = await readLetters(broker, request, signal);
      if (action === 'list') return list(letters);
      if (action === 'show') return show(letters);
      return printOutcomes(config.json, await purge(letters));
    });
  });
}

/** The letters that the request names, with the state of their tickets now. @throws {UserError} for a letter that does not exist. */
async function readLetters(
  broker: Broker,
  request: DeadLettersRequest,
  signal: AbortSignal,
): Promise<Letters> {
  const facts = await readTicketFacts(broker);
  const chosen = await entriesOf(choose(broker, request, signal), facts);
  return { broker, request, facts, chosen };
}

/** @throws {UserError} for a letter that does not exist. */
async function* choose(
  broker: Broker,
  { numbers, config }: DeadLettersRequest,
  signal: AbortSignal,
): AsyncGenerator<DeadLetter> {
  if (numbers.length === 0) yield* broker.deadLetters.past(signal);
  const missing: number[] = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const letter = await broker.deadLetters.at(number);
    if (letter === undefined) missing.push(number);
    else yield letter;
  }
  if (missing.length > 0) {
    throw new UserError(
      `run ${config.run} has no dead letter ${missing.join(', ')}; \`offbeat dead-letters list\` shows those that it has`,
    );
  }
}

async function readTicketFacts(broker: Broker): Promise<TicketFacts> {
  const config = await new RunConfigStore(broker).get();
  const { nextOrder, consumedBelow, consumedAbove } = (await broker.ledger.read()) ?? noTickets;
  const { maxStepsOffPolicy, groupsPerBatch } = config ?? noGroups;
  const bound = ticketBound(maxStepsOffPolicy, groupsPerBatch);
  const below = issuedBelow(nextOrder, await broker.ticketsSoFar(), bound);
  const ids = await broker.ledger.ticketIds();
  return { consumedBelow, consumedAbove, issuedBelow: below, ids };
}

/** The state of a run that has no checkpoint or no configuration yet. */
const noTickets = { nextOrder: 0, consumedBelow: 0, consumedAbove: [] };
const noGroups = { maxStepsOffPolicy: 0, groupsPerBatch: 0 };

function list({ chosen, request: { config } }: Letters): number {
  print(config.json ? printableJson(chosen) : listText(chosen));
  return 0;
}

async function show({ broker, facts, chosen, request: { config } }: Letters): Promise<number> {
  for (const { number } of chosen) {
    const letter = await broker.deadLetters.at(number);
    if (letter === undefined) continue; // purged meanwhile
    print(printableJson(showing(letter, facts), config.json ? undefined : 2));
  }
  return 0;
}

/**
 * A training learner has replaced the tickets already, and its memory is newer than the ledger; so
 * no learner may lead meanwhile. The ledger is read only then: a learner that led until now may have ended the tickets
 * in its last checkpoint. A letter is deleted once its message is stored again.
 *
 * @throws {UserError} while a learner trains, or for a letter that does not exist.
 */
export async function replay(
  broker: Broker,
  request: DeadLettersRequest,
  signal: AbortSignal,
): Promise<Outcome[]> {
  const refusal = `a learner trains run ${broker.run} and has replaced these tickets already; stop it before a replay`;
  await using _lead = await takeLead(broker, 'dead-letters', refusal, signal);
  const { chosen } = await readLetters(broker, request, signal);
  const outcomes: Outcome[] = [];
  for (const { number, ticket } of chosen) {
    const letter = await broker.deadLetters.at(number);
    if (letter === undefined) {
      outcomes.push({ number, isDone: false, why: 'it was deleted meanwhile' });
      continue;
    }
    const refusal = broker.deadLetters.refusal(letter);
    if (refusal !== undefined) {
      outcomes.push({ number, isDone: false, why: refusal });
      continue;
    }
    if (ticket === 'ended' && !request.config.force) {
      const why = 'its ticket has ended, so no learner waits for it; --force sends it anyway';
      outcomes.push({ number, isDone: false, why });
      continue;
    }
    const patience = AbortSignal.timeout(patienceMs);
    try {
      await broker.deadLetters.replay(letter, AbortSignal.any([signal, patience]));
    } catch (caught) {
      if (!patience.aborted || signal.aborted) throw caught;
      outcomes.push({ number, isDone: false, why: 'its queue is full; start the learner first' });
      continue;
    }
    await broker.deadLetters.remove(number);
    outcomes.push({ number, isDone: true, why: `published again on ${letter.subject}` });
  }
  return outcomes;
}

/** How long a queue may be full before a replay gives up. */
const patienceMs = 30_000;

/** The letter of an open ticket stays: without it the next learner would always wait for the ticket. */
async function purge({ broker, chosen }: Letters): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const { number, ticket } of chosen) {
    if (ticket === 'open') {
      const why = 'its ticket is still open in the last checkpoint; the next one ends it';
      outcomes.push({ number, isDone: false, why });
      continue;
    }
    await broker.deadLetters.remove(number);
    outcomes.push({ number, isDone: true, why: 'deleted' });
  }
  return outcomes;
}

function printOutcomes(json: boolean, outcomes: readonly Outcome[]): number {
  if (json) print(printableJson(outcomes));
  else {
    for (const { number, isDone, why } of outcomes) {
      print(`${number}: ${printable(isDone ? why : `left unchanged: ${why}`)}`);
    }
    if (outcomes.length === 0) print('no dead letters');
  }
  return outcomes.every(({ isDone }) => isDone) ? 0 : 1;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
