import { z } from 'zod';
import { readJson } from '../../shared/base/read-json.js';
import { string } from '../../shared/service/config-fields.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import { plainWords } from '../../shared/base/plain-words.js';

const int = z.int();
const scalar = z.union([z.string(), z.number(), z.boolean()]);

/** Flags of `npm start`, as in its configuration file: `{"groupsPerBatch": 64}`. */
export const Settings = z.record(
  z.string().regex(/^[a-z][A-Za-z0-9]*$/, 'expected camelCase'),
  scalar,
);
export type Settings = z.infer<typeof Settings>;

const Limits = z
  .strictObject({
    samples: int.positive().optional(), // rollouts to train on: the same for every run
    steps: int.positive().optional(),
    minutes: z.number().positive().optional(),
  })
  .refine((limits) => Object.keys(limits).length > 0, 'say when a run ends')
  .refine(({ samples, steps }) => samples === undefined || steps === undefined, {
    message: 'give samples or steps',
  });
export type Limits = z.infer<typeof Limits>;

const AxisValue = z.strictObject({
  label: string.max(40),
  settings: Settings,
  limits: Limits.optional(), // of these runs, instead of the experiment's
});

/** What is varied: the values of one setting, or named combinations. */
const Axis = z
  .strictObject({
    name: string,
    setting: string.optional(),
    values: z.array(z.union([scalar, AxisValue])).min(1),
  })
  .transform(({ name, setting, values }, context) => ({
    name,
    values: values.map((value, i): z.infer<typeof AxisValue> => {
      if (typeof value === 'object') return value;
      if (setting === undefined) {
        const message =
          'name the setting of this value with "setting", or give {"label", "settings"}';
        context.addIssue({ code: 'custom', path: ['values', i], message });
      }
      return { label: String(value), settings: { [setting ?? name]: value } };
    }),
  }));

/** Labels by axis. */
const Choice = z.record(string, z.coerce.string());
export type Choice = z.infer<typeof Choice>;

/** A number measured for each run. */
export const Measure = z.discriminatedUnion('from', [
  z.strictObject({
    from: z.literal('eval'), // of an evaluation, with each problem
    name: string,
    /** `start` or `end` of the run, or the name of a further evaluation. */
    at: string.default('end'),
    key: z.string().regex(/^(sampled|greedy|pass@\d+)$/, 'expected sampled, greedy or pass@K'),
  }),
  z.strictObject({
    from: z.literal('steps'), // of metrics.jsonl
    name: string,
    key: string,
    /** `end`: the mean of the last tenth; `variation`: the deviation as a share of the mean; `noise`: that from one step to the next, without a trend. */
    take: z.enum(['end', 'mean', 'min', 'max', 'variation', 'noise']).default('end'),
    percent: z.boolean().default(false),
  }),
]);
export type Measure = z.infer<typeof Measure>;
export type EvalMeasure = Extract<Measure, { from: 'eval' }>;

/** The answers to a problem that a measure needs: K of `pass@K`, else 1. */
export function triesOf(key: EvalMeasure['key']): number {
  return Number(/^pass@(\d+)$/.exec(key)?.[1] ?? 1);
}

const Panel = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('curve'), // against the samples trained
    title: string,
    from: z.enum(['eval', 'steps']),
    key: string,
    percent: z.boolean().default(false),
    smooth: int.positive().default(1), // steps that are averaged
    color: string, // an axis: a line each
    where: Choice.default({}), // of the other axes
  }),
  z.strictObject({
    kind: z.literal('end'), // the value of a measure, against an axis
    title: string,
    measure: string,
    x: string,
    color: string.optional(),
    where: Choice.default({}),
  }),
]);
export type PanelSpec = z.infer<typeof Panel>;

/** Compares runs with a baseline, problem by problem. */
const Comparison = z.strictObject({
  measure: string,
  against: Choice, // axes that are not named are those of the runs that are compared
  margin: z.number().positive().optional(), // a difference below it does not matter; 0.01: one point
});
export type Comparison = z.infer<typeof Comparison>;

const Evaluation = z.strictObject({
  problems: int.positive().default(1_024),
  samples: int.positive().default(4),
  everySamples: int.positive().optional(), // rollouts trained between two; none: first and last alone
});

/** An evaluation of finished runs by `offbeat eval`, with flags of that command. */
const FurtherEvaluation = z.strictObject({
  name: string.refine((name) => name !== 'start' && name !== 'end', 'the name is taken'),
  settings: Settings,
  where: Choice.default({}), // the runs that are evaluated so
});
export type FurtherEvaluation = z.infer<typeof FurtherEvaluation>;

/** The columns of a run's steps from which the measures and panels of an experiment are made. */
export function columnsOf({ measures, panels }: Pick<Sweep, 'measures' | 'panels'>): Set<string> {
  const ofMeasures = measures.filter((measure) => measure.from === 'steps');
  const ofPanels = panels.filter((panel) => panel.kind === 'curve');
  return new Set(['step', ...[...ofMeasures, ...ofPanels].map(({ key }) => key)]);
}

const seeds = z.array(int.nonnegative()).min(1);

const Shape = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,40}$/, 'expected lower-case letters, digits and -'),
  title: string,
  about: z.array(string).default([]), // paragraphs
  settings: Settings.default({}), // of every run
  axes: z.array(Axis).min(1),
  skip: z.array(Choice).default([]), // redundant combinations
  seeds,
  limits: Limits,
  evaluation: Evaluation.default({ problems: 1_024, samples: 4 }),
  furtherEvaluations: z.array(FurtherEvaluation).default([]),
  measures: z.array(Measure).min(1),
  comparisons: z.array(Comparison).default([]),
  panels: z.array(Panel).min(1),
  /** Smaller values for a quick trial of the whole; axes: the labels that remain. */
  short: z
    .strictObject({
      settings: Settings.default({}),
      axes: z.record(string, z.array(z.coerce.string()).min(1)).default({}),
      seeds: seeds.optional(),
      limits: Limits.optional(),
      evaluation: Evaluation.optional(),
      furtherEvaluations: z.array(FurtherEvaluation).optional(),
    })
    .optional(),
});

/** An experiment: runs over a grid of settings and some seeds, with measures and comparisons. */
export const SweepFile = Shape.check(({ value, issues }) => {
  const complain = (path: (string | number)[], message: string) =>
    issues.push({ code: 'custom', input: value, path, message });
  const axes = new Map(value.axes.map(({ name, values }) => [name, values]));
  const needAxis = (path: (string | number)[], name: string) => {
    if (!axes.has(name)) complain(path, `there is no axis ${name}; ${[...axes.keys()].join(', ')}`);
  };
  const needChoice = (path: (string | number)[], choice: Choice) => {
    for (const [name, label] of Object.entries(choice)) {
      needAxis([...path, name], name);
      const labels = axes.get(name)?.map((axisValue) => axisValue.label);
      if (labels?.includes(label) === false) {
        complain([...path, name], `${name} is never ${label}; ${labels.join(', ')}`);
      }
    }
  };
  const needMeasure = (path: (string | number)[], name: string) => {
    const measure = value.measures.find((other) => other.name === name);
    if (measure === undefined) complain(path, `there is no measure ${name}`);
    return measure;
  };
  const places = ['start', 'end', ...value.furtherEvaluations.map(({ name }) => name)];
  value.measures.forEach((measure, i) => {
    if (measure.from !== 'eval') return;
    const { at, key } = measure;
    if (!places.includes(at)) {
      complain(['measures', i, 'at'], `there is no evaluation ${at}; ${places.join(', ')}`);
    }
    const further = value.furtherEvaluations.find(({ name }) => name === at);
    const samples = further === undefined ? value.evaluation.samples : further.settings['samples'];
    const tries = triesOf(key);
    if (typeof samples === 'number' && tries > samples) {
      complain(
        ['measures', i, 'key'],
        `${key} needs ${tries} answers, and the evaluation ${at} has ${samples}; give it more samples`,
      );
    }
  });
  value.furtherEvaluations.forEach(({ where }, i) => {
    needChoice(['furtherEvaluations', i, 'where'], where);
  });
  value.skip.forEach((choice, i) => {
    needChoice(['skip', i], choice);
  });
  value.comparisons.forEach(({ against, measure }, i) => {
    needChoice(['comparisons', i, 'against'], against);
    if (needMeasure(['comparisons', i, 'measure'], measure)?.from === 'steps') {
      complain(
        ['comparisons', i, 'measure'],
        'only measures from eval are known problem by problem',
      );
    }
  });
  value.panels.forEach((panel, i) => {
    needChoice(['panels', i, 'where'], panel.where);
    if (panel.color !== undefined) needAxis(['panels', i, 'color'], panel.color);
    if (panel.kind === 'end') {
      needAxis(['panels', i, 'x'], panel.x);
      needMeasure(['panels', i, 'measure'], panel.measure);
    }
  });
  for (const [name, labels] of Object.entries(value.short?.axes ?? {})) {
    for (const label of labels) needChoice(['short', 'axes'], { [name]: label });
  }
});
export type Sweep = z.infer<typeof SweepFile>;

/**
 * Reads the description of an experiment.
 *
 * @param isShort read its short form.
 * @throws {UserError} naming the file and all its faults.
 */
export async function readSweepFile(path: string, isShort: boolean): Promise<Sweep> {
  const json = await readJson(path).catch((cause: unknown) => {
    throw new UserError(
      `cannot read the experiment in ${path} (${errorText(cause)}); give a JSON file, such as one of docs/experiments`,
      { cause },
    );
  });
  const sweep = SweepFile.safeParse(json, { error: plainWords });
  if (!sweep.success) {
    const complaints = sweep.error.issues.map(
      ({ path: where, message }) => `  - ${where.map(String).join('.') || 'the file'}: ${message}`,
    );
    throw new UserError(`${path} does not describe an experiment:\n${complaints.join('\n')}`);
  }
  if (!isShort) return sweep.data;
  if (sweep.data.short === undefined) throw new UserError(`${path} has no short form`);
  return shortened(sweep.data, sweep.data.short);
}

function shortened(sweep: Sweep, { settings, axes, ...rest }: NonNullable<Sweep['short']>): Sweep {
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  return {
    ...sweep,
    ...given,
    name: `${sweep.name}-short`,
    settings: { ...sweep.settings, ...settings },
    axes: sweep.axes.map(({ name, values }) => ({
      name,
      values: values
        .filter(({ label }) => axes[name]?.includes(label) ?? true)
        .map(({ label, settings: chosen }) => ({ label, settings: chosen })), // the short limits
    })),
  };
}
