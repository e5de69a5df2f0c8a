import { rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { errorText, UserError } from '../../shared/base/errors.js';
import { plainWords } from '../../shared/base/plain-words.js';
import { isEngine, SamplerKind } from '../../shared/wire/actor-lease.js';
import { readJson } from '../../shared/base/read-json.js';
import type { RunFolder } from '../run-folder.js';
import { type Environment, kebab } from '../../shared/service/config.js';
import { checkRequest } from './load-up-config.js';
import {
  limits,
  ofCost,
  usualActorsOfRun,
  withEnd,
  UpConfig,
  withKey,
  type UpRequest,
} from './up-config.js';
import { usualAlpha } from '../../shared/model/lora.js';

/** How `offbeat up` started a run: the content of launch.json. */
export const Launch = z.object({
  run: z.string(),
  /** Its own flags, without the key of a backend. */
  launcher: z.looseObject({
    sampler: SamplerKind,
    modelDir: z.string().optional(),
    modelName: z.string().optional(),
    loraAlpha: z.number().optional(),
    backendUrl: z.string().optional(),
    engineUrl: z.string().optional(),
    natsUrl: z.string().optional(),
    natsKeys: z.string().optional(),
  }),
  /** The learner's settings that were given. */
  settings: z.record(z.string(), z.unknown()).default({}),
});
export type Launch = z.infer<typeof Launch>;

/** @throws {UserError} if the folder is not one of `offbeat up`. */
export async function readLaunch({ launch }: Pick<RunFolder, 'launch'>): Promise<Launch> {
  try {
    return Launch.parse(await readJson(launch), { error: plainWords });
  } catch (cause) {
    throw new UserError(
      `${launch} does not say how the run was started (${errorText(cause)}); is it one of offbeat up?`,
      { cause },
    );
  }
}

/**
 * Writes the file atomically, so a crash leaves the earlier one. Only its owner can read it, since the URL
 * of the user's own NATS server may hold a password.
 */
export async function writeLaunch(path: string, launch: Launch): Promise<void> {
  const partial = `${path}.partial`;
  await writeFile(partial, `${JSON.stringify(launch, undefined, 2)}\n`, { mode: 0o600 });
  await rename(partial, path);
}

/** The learner's settings that are not part of what a run trains: they may change at a resume. */
const changeableSettings = [
  ...[...limits, 'checkpointEverySteps', 'keepEverySteps', 'leaseSeconds', 'ticketDeadlineSeconds'],
  ...['ticketsAhead', 'stopPatienceSeconds'],
  ...['evalProblems', 'evalSamples', 'evalEveryVersions'],
  ...[
    'auditShare',
    'auditNoise',
    'auditSelectionShare',
    'auditOnSelection',
    'auditRequireDraws',
    'auditVersionShare',
  ],
  ...['adapterStore', 'adapterDtype', 'publishAdapters', 'checkpointDir'],
  ...['trainerClass', 'streamReplicas'],
  ...['stopKl', 'stopRewardShare', 'stopPatience', 'stopZeroVariance'],
  ...ofCost,
];

/**
 * A run has its own servers or the user's: the address of the user's may change, the choice between them may
 * not.
 */
const places = { natsUrl: 'NATS', backendUrl: 'backend' } as const;

/**
 * The settings of a resumed run: those that it was started with, except where others are given now and may
 * change. If any limit is given now, the earlier limits do not count.
 *
 * @throws {UserError} naming every flag that would make it another run.
 */
export function resumed(
  learner: z.ZodObject,
  request: UpRequest,
  launch: Launch,
  env: Environment,
): UpRequest {
  const { run } = launch;
  const problems: string[] = [];
  const complain = (key: string, message: string): void => {
    problems.push(`--${kebab(key)} ${message}`);
  };

  const stored = launch.launcher;
  for (const [key, what] of Object.entries(places)) {
    const [before, now] = [stored[key], request.given[key as keyof typeof places]];
    if (now !== undefined && before === undefined) {
      complain(key, `is given, but the run has its own ${what}; remove it`);
    }
  }
  const modelName = request.given.modelName;
  if (modelName !== undefined && modelName !== stored.modelName) {
    complain('modelName', `is ${modelName}, the run trains ${stored.modelName ?? 'another'}`);
  }

  const settings = withLimits(launch.settings, request.settings);
  const has = learner.safeParse({ ...withEnd(launch.settings), run: 'any' }).data ?? {};
  const { loraAlpha } = request.given;
  const rank = has['loraRank'];
  const alpha = stored.loraAlpha ?? (typeof rank === 'number' ? usualAlpha(rank) : undefined);
  if (loraAlpha !== undefined && loraAlpha !== alpha) {
    complain('loraAlpha', `is ${loraAlpha}, the run has ${shown(alpha)}`);
  }
  for (const [key, now] of Object.entries(request.settings)) {
    if (changeableSettings.includes(key)) continue;
    const before = has[key];
    if (before !== now) complain(key, `is ${shown(now)}, the run has ${shown(before)}`);
  }

  const { sampler = stored.sampler } = request.given;
  const kept = sampler === stored.sampler ? stored : ofOtherSampler(stored, sampler);
  const config = withKey(UpConfig.parse({ ...kept, ...request.given, resume: true }), env);
  if (problems.length === 0) checkRequest(learner, config, settings, env, complain);
  if (problems.length > 0) {
    const list = problems.map((problem) => `  - ${problem}`).join('\n');
    throw new UserError(
      `the run ${run} cannot be resumed with these settings; leave them out, or start a new run with them:\n${list}`,
    );
  }
  return { config, settings, given: request.given };
}

/** What the launcher of a run was given, but for what fits only the sampler that it had then. */
function ofOtherSampler(stored: Launch['launcher'], sampler: SamplerKind): object {
  const { engineUrl: _engine, segmentTokens: _tokens, onAdoption: _cache, ...others } = stored;
  const keepsActors = isEngine(stored.sampler) === isEngine(sampler);
  return keepsActors ? others : { ...others, actors: usualActorsOfRun({ ...stored, sampler }) };
}

function withLimits(
  stored: UpRequest['settings'],
  given: UpRequest['settings'],
): UpRequest['settings'] {
  const isLimited = limits.some((limit) => given[limit] !== undefined);
  const isLimit = (key: string) => (limits as readonly string[]).includes(key);
  const kept = Object.entries(stored).filter(([key]) => !(isLimited && isLimit(key)));
  return { ...Object.fromEntries(kept), ...given };
}

function shown(value: unknown): string {
  if (value === undefined) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
