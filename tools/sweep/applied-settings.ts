import { z } from 'zod';
import { embeddedModelPath, readModelConfig } from '../../shared/model/model-directory.js';
import { type Fitting, fitToModel } from '../../shared/run/hyperparameters.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { kebab } from '../../shared/service/config.js';
import { TaskSettings, taskSpec } from '../../shared/tasks/registry.js';
import { loadEvalConfig } from '../../cli/eval/eval-config.js';
import { loadUpConfig } from '../../cli/up/load-up-config.js';
import { asFlags, runSettings, type UpConfig, usualActors } from '../../cli/up/up-config.js';
import { SamplerKind } from '../../shared/wire/actor-lease.js';
import type { PlannedRun } from './plan.js';
import type { FurtherEvaluation, Settings } from './sweep-file.js';

/** The settings that apply to a run, given and by default, by the process that has them. */
export const AppliedSettings = z.record(z.string(), z.record(z.string(), z.json()));
export type AppliedSettings = z.infer<typeof AppliedSettings>;

/** A planned run with the settings that it would have now. */
export interface AppliedRun extends PlannedRun {
  readonly applied: AppliedSettings;
}

/** A single run of an experiment is not watched, and nothing may slow it down, unless its settings say otherwise. */
const quiet = { json: true, dashboard: false };

/**
 * The flags of a run, without its place: each is given once, since `offbeat up` refuses two values. The number of
 * actors does not depend on the machine, as it does by default, so that an experiment is the same one everywhere.
 */
export function flagsOf({ settings }: Pick<PlannedRun, 'settings'>): string[] {
  const sampler = SamplerKind.safeParse(settings['sampler']).data; // another one is refused with the flags
  const actors = usualActors(sampler);
  return asFlags({ ...quiet, actors, ...settings });
}

/** The part of `AppliedSettings` that is the run's configuration, where names are paths and no flags. */
const theRun = 'the run';

type RunMaterial = Pick<RunConfig, 'model' | 'task' | 'datasetDigest'>;

/** The schemas of the services that a run has. */
export interface ServiceSchemas {
  readonly learner: z.ZodObject;
  readonly others: Readonly<Record<string, z.ZodObject>>; // by name
  /** The run's configuration by the learner. */
  readonly runConfig: (settings: never, found: RunMaterial) => object;
}

/** Settings that depend on the machine, or are secret, and the place of a run: they do not say what is measured. */
const ofPlace =
  /^(?:name|run|runsDir|resume|runDir|threads|modelDir|.*[kK]ey(?:File)?|(?:host|port|health|http|nats).*)$/;

/**
 * The settings of a run as `offbeat up` and its services would read them now, with their defaults, and those of its
 * further evaluations. A default of a service counts only where `offbeat up` does not give the setting.
 *
 * @throws {UserError} listing the settings that would be refused, or naming a file that cannot be read.
 */
export async function appliedSettings(
  schemas: ServiceSchemas,
  settings: Settings,
  further: readonly FurtherEvaluation[],
): Promise<AppliedSettings> {
  const { learner, others } = schemas;
  const { config, settings: given } = loadUpConfig(learner, flagsOf({ settings }), {});
  const ofLearner = learner.parse({ ...given, run: 'any' });
  const chosen = Object.keys(runSettings(learner)).map((key) => [key, ofLearner[key]] as const);
  const isGiven = (key: string) => config[key as keyof UpConfig] !== undefined || key in ofLearner;
  const ofServices = Object.entries(others).map(([service, schema]) => {
    const defaults = Object.entries(defaultsOf(schema.shape));
    return [service, Object.fromEntries(defaults.filter(([key]) => !isGiven(key)))] as const;
  });
  const ofEvaluations = further.map(({ name, settings }) => {
    const flags = asFlags({ ...settings, run: 'any' });
    return [`evaluation ${name}`, loadEvalConfig(flags, {})] as const;
  });
  return asStored({
    up: config,
    learner: Object.fromEntries(chosen),
    [theRun]: await configured(schemas, ofLearner, config.modelDir),
    ...Object.fromEntries([...ofServices, ...ofEvaluations]),
  });
}

/**
 * The run's configuration as the learner would make it, which has the defaults that are not in a schema, since they
 * follow from other settings or from the model: the learning rate, the thresholds of the loss, the ranges of the problems.
 */
async function configured(
  { runConfig }: ServiceSchemas,
  learner: Readonly<Record<string, unknown>>,
  modelDir = embeddedModelPath,
): Promise<object> {
  const { dataset = 'generator' } = learner;
  // A file may be gone, and the hub away: the name is among the settings, and the digest is compared by itself.
  const anyFile = dataset === 'generator' ? {} : { dataset: 'problems.jsonl' };
  const task = await taskSpec(TaskSettings.parse({ ...learner, ...anyFile }));
  const fitted = fitToModel(
    learner as Readonly<Record<string, unknown>> & Fitting,
    await readModelConfig(modelDir),
    task.prompt,
  );
  const found = { model: { name: 'any', digest: 'any' }, task, datasetDigest: 'any' };
  // `--from` may name a run, which only `offbeat up` can find.
  return runConfig({ ...fitted, run: 'any', from: undefined } as never, found);
}

function defaultsOf(shape: z.core.$ZodShape): Record<string, unknown> {
  const withDefault = Object.entries(shape).flatMap(([key, field]) =>
    field instanceof z.ZodDefault ? [[key, field.parse(undefined)] as const] : [],
  );
  return Object.fromEntries(withDefault);
}

/** Without what depends on the place, and as JSON gives it back. */
function asStored(settings: Readonly<Record<string, object>>): AppliedSettings {
  const parts = Object.entries(settings).map(([process, values]) => {
    const kept = Object.entries(values).filter(([key]) => !ofPlace.test(key));
    return [process, Object.fromEntries(kept)] as const;
  });
  return AppliedSettings.parse(JSON.parse(JSON.stringify(Object.fromEntries(parts))));
}

/** `--kl-coef of learner was 0.1 and is 0.2 now`, for each setting that differs. */
export function differences(stored: AppliedSettings, now: AppliedSettings): string[] {
  const processes = [...new Set([...Object.keys(stored), ...Object.keys(now)])];
  return processes.flatMap((process) => {
    const [before, after] = [leavesOf(stored[process]), leavesOf(now[process])];
    const keys = [...new Set([...before.keys(), ...after.keys()])];
    return keys
      .filter((key) => before.get(key) !== after.get(key))
      .map((key) => {
        const name = process === theRun ? key : `--${kebab(key)}`;
        const [was, is] = [before.get(key) ?? 'not set', after.get(key) ?? 'not set'];
        return `${name} of ${process} was ${was} and is ${is} now`;
      });
  });
}

/** The values that have no parts, as JSON, by path: `adam.beta1`. */
function leavesOf(value: unknown, path = ''): Map<string, string> {
  if (typeof value !== 'object' || value === null) {
    return new Map(value === undefined ? [] : [[path, JSON.stringify(value)]]);
  }
  const parts = Object.entries(value).flatMap(([key, part]) => [
    ...leavesOf(part, path === '' ? key : `${path}.${key}`),
  ]);
  return new Map(parts);
}
