import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { orderOf } from '../../shared/base/ticket-name.js';
import { until } from '../support/waiting.js';
import { audit, type Audit } from './audit.js';
import { auditEvals } from './audit-evals.js';
import { auditFiles } from './audit-files.js';
import { auditLedger } from './audit-ledger.js';
import { auditPasses } from './audit-passes.js';
import { keyOf } from './group-key.js';
import { Judgement } from './judgement.js';
import { Lineages } from './lineage.js';
import { rebuild, saved } from './rebuild.js';
import type { Recorded } from './witness.js';
import type { World } from './world.js';

export interface Outcome extends Omit<Audit, 'stalenessOfSteps'> {
  readonly steps: number; // of the surviving weights
}

const nothing = { trained: 0, largestStaleness: 0, lost: 0, steps: 0 };
const lastName = 'learner-last';

export interface FinishOptions {
  /** Training continues, so the run can end in order. */
  readonly isAlive: boolean;
  /** Its learner has stopped and reported the reason, which is also an end. */
  readonly isStopped: boolean;
  readonly stillMs: number;
  readonly report: (line: string) => void;
}

/** Ends the run in order after three more steps and audits it; also audits what exists of a run that cannot end. */
export async function finish(world: World, options: FinishOptions): Promise<Outcome> {
  const violations: string[] = [];
  const canEnd = options.isAlive && !options.isStopped;
  const hasEnded = canEnd && (await end(world, options, violations));
  const { witness, observer } = world;
  const lineages = new Lineages(witness.operations);
  violations.push(...auditLedger(world.ledgerSights, lineages));
  const config = await new RunConfigStore(observer).get();
  if (config === undefined) return { ...nothing, violations: [...violations, 'no run was begun'] };

  const judgement = await Judgement.open(config, embeddedModelPath);
  const groups = witness.delivered.map(({ group }) => group);
  const judged = judgement.groups(groups);
  violations.push(...judgement.complaints(witness.scored, new Set(judged.keys())));
  violations.push(...auditPasses(witness.operations, judged, config));
  const ledger = await observer.ledger.read();
  if (!hasEnded || ledger === undefined) {
    return { ...nothing, steps: ledger?.step ?? 0, violations };
  }

  const { shape, versions } = world;
  const { issued } = witness;
  const trainable = new Set(
    witness.scored.flatMap(({ group }) => (group.ticket.split === 'train' ? keyOf(group) : [])),
  );
  const scored = new Map([...judged].filter(([key]) => trainable.has(key)));
  const dead = await deadOrders(world);
  const evidence = { ...shape, ledger, issued, scored, dead, versions };
  const result = audit({ ...evidence, operations: witness.operations }, lineages);
  violations.push(...result.violations);

  const events = await readAll((signal) => world.observer.events.past(signal));
  violations.push(
    ...auditEvals({
      results: events.flatMap((event) => (event.kind === 'eval' ? event.result : [])),
      delivered: groups.filter(({ ticket }) => ticket.split === 'eval'),
      ...{ problems: shape.evalProblems, samples: shape.evalSamples },
      scores: (group) => judgement.scores(group),
    }),
  );
  const survivor = lineages.saved(ledger.statePath);
  const file = (name: string) => readFile(join(world.runDir(lastName), name), 'utf8');
  violations.push(
    ...auditFiles({
      ...{ metrics: await file('metrics.jsonl'), summary: await file('summary.json') },
      ...{ events, ledger, hasEvaluations: shape.evalProblems > 0 },
      lossSums: lineages
        .steps(survivor)
        .map(({ substeps }) =>
          (substeps.flat() as Recorded[]).reduce((sum, { lossSum }) => sum + (lossSum ?? NaN), 0),
        ),
      staleness: result.stalenessOfSteps,
    }),
  );

  const history = lineages.history(survivor) as Recorded[];
  const whole = await rebuild(history, config.lora, join(world.folder, 'rebuilt'));
  const survived = await saved(world.checkpointFolder, ledger.statePath);
  if (!whole.every((bytes, i) => bytes.equals(survived[i]!))) {
    violations.push('the parameters differ from those of an uninterrupted run of the same batches');
  }
  const { stalenessOfSteps: _each, ...figures } = result;
  return { ...figures, violations, steps: ledger.step };
}

/** Lets another learner train three more steps, to the end of the run. @returns whether it got there. */
async function end(
  world: World,
  { stillMs, report }: FinishOptions,
  violations: string[],
): Promise<boolean> {
  for (const name of ['learner-1', 'learner-0']) {
    const learner = world.kept.get(name)!;
    const code = await learner.letGo();
    if (code === undefined || code === 0) continue;
    const { errors, tail, log } = learner.process;
    report(`${name} ended with ${code ?? 'none'} after SIGTERM:\n${errors}${tail}`);
    // A paused leader that finds itself replaced is ending by itself, with code 1, when the signal comes.
    if (code === 1 && log.some(({ msg }) => msg === 'leader lease lost to another learner'))
      continue;
    violations.push(`${name} ended with code ${code ?? 'none'} after SIGTERM`);
  }
  const reached = (await world.observer.ledger.read())?.step ?? 0;
  const last = world.learner(lastName, reached + 3);
  const deadline = performance.now() + 3 * stillMs;
  await until(() => last.hasEnded || performance.now() > deadline);
  const code = last.hasEnded ? await last.exitCode() : undefined;
  if (code === 0) return true;
  report(last.errors + last.tail);
  const what = last.hasEnded ? `ended with code ${code ?? 'none'}` : 'came to no end';
  violations.push(`the last learner ${what}`);
  return false;
}

async function deadOrders({ observer }: World): Promise<Map<number, number>> {
  const dead = new Map<number, number>();
  for (const letter of await readAll((signal) => observer.deadLetters.past(signal))) {
    const order = orderOf(ticketOf(letter)?.ticketId ?? '');
    if (order !== undefined) dead.set(order, (dead.get(order) ?? 0) + 1);
  }
  return dead;
}

/** Reads everything. @throws {Error} if that takes too long: a part is no evidence. */
async function readAll<T>(read: (signal: AbortSignal) => AsyncIterable<T>): Promise<T[]> {
  const signal = AbortSignal.timeout(60_000);
  const all: T[] = [];
  for await (const each of read(signal)) all.push(each);
  signal.throwIfAborted(); // the reader only ends
  return all;
}
