import type { z } from 'zod';
import { sha256 } from '../../shared/base/bytes.js';
import { UserError } from '../../shared/base/errors.js';
import { longestRunName, RunName } from '../../shared/wire/run-name.js';
import type { Choice, Limits, Settings, Sweep } from './sweep-file.js';
import { loadUpConfig } from '../../cli/up/load-up-config.js';
import { asFlags } from '../../cli/up/up-config.js';

/** One combination of the axes' values. */
export interface Cell {
  readonly choice: Choice; // in the order of the axes
  readonly settings: Settings;
  readonly limits: Limits;
}

/** One run of `offbeat up`. */
export interface PlannedRun {
  readonly name: string; // made from its settings, and unique to them
  readonly choice: Choice;
  readonly seed: number;
  readonly settings: Settings; // all of them
  readonly samplesPerStep: number; // rollouts
}

/** The settings that the learner will use, its defaults included. */
interface Resolved {
  readonly groupsPerBatch: number;
  readonly groupSize: number;
}

/**
 * All combinations that are not skipped, the last axis fastest. If several axes give limits, the last one's count.
 *
 * @throws {UserError} if a setting is given by two axes.
 */
export function cellsOf({ axes, skip, settings, limits }: Sweep): Cell[] {
  let cells: Cell[] = [{ choice: {}, settings, limits }];
  const takenBy = new Map<string, string>();
  for (const { name, values } of axes) {
    for (const key of new Set(values.flatMap((value) => Object.keys(value.settings)))) {
      const other = takenBy.get(key);
      if (other !== undefined) {
        throw new UserError(`the axes ${other} and ${name} both set ${key}`);
      }
      takenBy.set(key, name);
    }
    cells = cells.flatMap((cell) =>
      values.map((value) => ({
        choice: { ...cell.choice, [name]: value.label },
        settings: { ...cell.settings, ...value.settings },
        limits: value.limits ?? cell.limits,
      })),
    );
  }
  return cells.filter(({ choice }) => !skip.some((skipped) => isIn(choice, skipped)));
}

/** Whether a cell's choice agrees with `part`. */
export function isIn(choice: Choice, part: Choice): boolean {
  return Object.entries(part).every(([axis, label]) => choice[axis] === label);
}

/**
 * The runs of an experiment, all cells with the first seed first, so that there is something to see early.
 * Limits in samples become each run's own number of steps.
 *
 * @param resolve checks the settings of a run as `offbeat up` would.
 * @throws {UserError} from `resolve`, or if a limit is not a whole number of steps.
 */
export function planRuns(sweep: Sweep, resolve: (settings: Settings) => Resolved): PlannedRun[] {
  const cells = cellsOf(sweep);
  if (cells.length === 0) throw new UserError(`${sweep.name} skips every combination`);
  checkBaselines(sweep, cells);
  return sweep.seeds.flatMap((seed) =>
    cells.map((cell): PlannedRun => {
      const { choice, settings: chosen } = cell;
      const { groupsPerBatch, groupSize } = resolve(chosen);
      const samplesPerStep = groupsPerBatch * groupSize;
      const settings = { ...chosen, ...measured(cell, sweep.evaluation, samplesPerStep), seed };
      resolve(settings);
      return { name: nameOf(choice, seed, settings), choice, seed, settings, samplesPerStep };
    }),
  );
}

/** Otherwise a missing baseline would be noticed only in the report, after all runs. */
function checkBaselines({ name, comparisons }: Sweep, cells: readonly Cell[]): void {
  const known = new Set(cells.map(({ choice }) => describe(choice)));
  for (const { against } of comparisons) {
    for (const { choice } of cells) {
      const baseline = describe({ ...choice, ...against });
      if (known.has(baseline)) continue;
      throw new UserError(
        `${name} compares ${describe(choice)} with ${baseline}, which is skipped; name more axes in "against"`,
      );
    }
  }
}

/** The settings of one cell that follow from its limits and the evaluations of the experiment. */
function measured(
  { limits, choice }: Cell,
  evaluation: Sweep['evaluation'],
  samplesPerStep: number,
): Settings {
  const stepsFor = (samples: number, what: string): number => {
    if (samples % samplesPerStep === 0) return samples / samplesPerStep;
    throw new UserError(
      `${what} is ${samples} samples, not a whole number of steps where ${describe(choice)}: a step has ${samplesPerStep}`,
    );
  };
  const { samples, steps, minutes } = limits;
  const maxSteps = samples === undefined ? steps : stepsFor(samples, 'the limit');
  const { everySamples } = evaluation;
  return {
    ...(maxSteps !== undefined && { maxSteps }),
    ...(minutes !== undefined && { maxMinutes: minutes }),
    evalProblems: evaluation.problems,
    evalSamples: evaluation.samples,
    evalEveryVersions:
      everySamples === undefined ? 0 : stepsFor(everySamples, 'the time between evaluations'),
  };
}

/** `lag 4, correction none`. */
export function describe(choice: Choice): string {
  return Object.entries(choice)
    .map(([axis, label]) => `${axis} ${label}`)
    .join(', ');
}

/** It contains a digest of the settings: a run with other settings is another run. */
function nameOf(choice: Choice, seed: number, settings: Settings): string {
  const sorted = Object.entries(settings).sort(([a], [b]) => (a < b ? -1 : 1));
  const digest = sha256(JSON.stringify(sorted)).slice(0, 6);
  const words = Object.values(choice)
    .join('-')
    .replace(/[^A-Za-z0-9]+/g, '-');
  const end = `-s${seed}-${digest}`;
  const start = words.replace(/^-+/, '').slice(0, Math.min(34, longestRunName - end.length));
  return RunName.parse(`${start === '' ? 'run' : start}${end}`);
}

/**
 * The settings of a run as `offbeat up` would read them.
 *
 * @throws {UserError} listing the settings that it would refuse.
 */
export function resolveSettings(learner: z.ZodObject, settings: Settings): Resolved {
  const given = loadUpConfig(learner, asFlags(settings), {}).settings;
  const all = learner.parse({ ...given, run: 'any' });
  return {
    groupsPerBatch: Number(all['groupsPerBatch']),
    groupSize: Number(all['groupSize']),
  };
}
