import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import type { RunEvent } from '../../shared/wire/run-event.js';

/** The files that a run leaves for its user, and independent evidence about the run. */
export interface FilesEvidence {
  readonly metrics: string; // metrics.jsonl
  readonly summary: string; // summary.json
  readonly events?: readonly RunEvent[]; // the run's history; undefined if it cannot be read
  readonly ledger: Pick<Checkpoint, 'step' | 'version' | 'counts'>;
  readonly hasEvaluations: boolean;
  /** [steps] of each surviving step, as the backend answered; undefined if it was not recorded. */
  readonly lossSums?: readonly number[];
  /** [steps] by the true descent of the weights. */
  readonly staleness?: readonly number[];
}

const Line = z.looseObject({ step: z.int(), version: z.int(), time: z.string() });
const Summary = z.looseObject({
  reason: z.string(),
  steps: z.int(),
  version: z.int(),
  groups: z.record(z.string(), z.int()),
  staleness: z.object({ max: z.number() }),
  eval: z.unknown(),
});

/** The faults of metrics.jsonl and summary.json, one sentence each. */
export function auditFiles(evidence: FilesEvidence): string[] {
  const problems: string[] = [];
  const lines = readLines(evidence.metrics, problems);
  checkOrder(lines, evidence.ledger.step, problems);
  checkLines(lines, evidence, problems);
  checkSummary(lines, evidence, problems);
  return problems;
}

type Line = z.infer<typeof Line>;

function readLines(text: string, problems: string[]): Line[] {
  const rows = text.split('\n');
  if (rows.pop() !== '') problems.push('metrics.jsonl ends in the middle of a line');
  return rows.flatMap((row, i) => {
    try {
      return [Line.parse(JSON.parse(row))];
    } catch {
      problems.push(`line ${i + 1} of metrics.jsonl is none of a step: ${row.slice(0, 80)}`);
      return [];
    }
  });
}

/** Checks that each surviving step appears once, in order, with rising versions. */
function checkOrder(lines: readonly Line[], last: number, problems: string[]): void {
  const steps = lines.map(({ step }) => step);
  for (let step = 1; step <= last; step++) {
    const times = steps.filter((each) => each === step).length;
    if (times !== 1) problems.push(`metrics.jsonl tells of step ${step} ${times} times`);
  }
  for (const step of steps) {
    if (step > last) problems.push(`metrics.jsonl tells of step ${step}; the last one is ${last}`);
  }
  lines.forEach(({ step, version }, i) => {
    const before = lines[i - 1];
    if (before === undefined) return;
    if (step <= before.step) problems.push(`step ${step} stands behind step ${before.step}`);
    if (version <= before.version)
      problems.push(`step ${step} made version ${version}, the one before ${before.version}`);
  });
}

/** Checks that each line agrees with the run's history and with the descent of the weights. */
function checkLines(
  lines: readonly Line[],
  { events, lossSums, staleness }: FilesEvidence,
  problems: string[],
): void {
  for (const { step, version, time, ...metrics } of lines) {
    const isTold = events?.some(
      (event) =>
        event.kind === 'step' &&
        event.step === step &&
        event.version === version &&
        new Date(event.at).toISOString() === time &&
        isDeepStrictEqual(event.metrics, metrics),
    );
    if (isTold === false) problems.push(`step ${step} of metrics.jsonl is in no event`);
    const found = Number(metrics['loss/sum']);
    const loss = lossSums?.[step - 1];
    if (loss !== undefined && !(Math.abs(found - loss) <= 1e-6 * Math.max(1, Math.abs(loss)))) {
      problems.push(
        `step ${step} of metrics.jsonl has the loss ${found}; the surviving weights had ${loss}`,
      );
    }
    const largest = staleness?.[step - 1];
    if (largest !== undefined && metrics['staleness/max'] !== largest) {
      problems.push(
        `step ${step} of metrics.jsonl has the staleness ${String(metrics['staleness/max'])}; it was ${largest}`,
      );
    }
  }
}

function checkSummary(
  lines: readonly Line[],
  { summary: text, ledger, hasEvaluations }: FilesEvidence,
  problems: string[],
): void {
  let summary: z.infer<typeof Summary>;
  try {
    summary = Summary.parse(JSON.parse(text));
  } catch {
    problems.push(`summary.json is none: ${text.slice(0, 80)}`);
    return;
  }
  const differ = (what: string, found: unknown, expected: unknown) => {
    if (isDeepStrictEqual(found, expected)) return;
    problems.push(
      `summary.json has ${what} ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`,
    );
  };
  differ('the reason', summary.reason, 'max_steps');
  differ('the steps', summary.steps, ledger.step);
  differ('the version', summary.version, ledger.version);
  differ('the groups', summary.groups, ledger.counts);
  const staleness = lines.map((line) => Number(line['staleness/max']));
  differ('the largest staleness', summary.staleness.max, Math.max(0, ...staleness));
  differ('evaluations', summary.eval !== null, hasEvaluations);
}
