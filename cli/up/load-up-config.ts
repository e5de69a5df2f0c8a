import { z } from 'zod';
import {
  type Elsewhere,
  type Environment,
  environmentName,
  flagsOf,
  kebab,
  loadConfig,
  settingName,
} from '../../shared/service/config.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';
import { plainWords } from '../../shared/base/plain-words.js';
import {
  keyOf,
  limits,
  runSettings,
  UpConfig,
  type UpRequest,
  upService,
  withEnd,
  withKey,
  usualActorsOfRun,
  usualSteps,
} from './up-config.js';

/** A command that starts a run: `offbeat up` by default. */
export interface StartCommand {
  /** Whether it has a setting of the launcher or of the learner. */
  readonly offers: (key: string) => boolean;
  /** The learner's settings of a new run that are not the learner's own defaults. */
  readonly defaults: Readonly<Record<string, unknown>>;
  readonly trainsOnExamples: boolean;
}

const anything: StartCommand = { offers: () => true, defaults: {}, trainsOnExamples: false };

/**
 * Reads the flags of `offbeat up`: its own, and with them every setting of the learner, so that a
 * mistake shows before anything starts.
 *
 * @throws {UserError} listing every problem at once; or naming the flags that npm kept for itself.
 */
export function loadUpConfig(
  learner: z.ZodObject,
  argv: readonly string[],
  env: Environment,
  { offers, defaults }: StartCommand = anything,
  elsewhere?: Elsewhere,
): UpRequest {
  const offered = (shape: Readonly<Record<string, z.core.$ZodType>>) =>
    Object.fromEntries(Object.entries(shape).filter(([key]) => offers(key)));
  const choices = offered(runSettings(learner));
  const own = offered(UpConfig.shape);
  const withUsual = (launcher: Partial<UpConfig>, settings: UpRequest['settings']) => {
    const chosen = { ...defaults, ...settings };
    return { ...usualSteps(launcher, chosen), ...chosen };
  };
  refuseFlagsKeptByNpm('start', flagsOf({ ...choices, ...own }), argv, env);
  // Without their defaults: a setting that is not given is left to the learner and its environment, or in a
  // resumed run to the stored settings.
  const optional = Object.entries({ ...choices, ...own }).map(
    ([key, field]) => [key, withoutDefault(field as z.ZodType).optional()] as const,
  );
  const schema = z.object(Object.fromEntries(optional)).check(({ value, issues }) => {
    const input = value as Readonly<Record<string, unknown>>;
    const isToldOf = (key: string) => issues.some(({ path }) => path?.[0] === key);
    const complain = (key: string, message: string) => {
      if (!isToldOf(key)) issues.push({ code: 'custom', input, path: [key], message });
    };
    if (input['resume'] === true) {
      // The rest is checked together with the stored settings, see `resumed`.
      if (input['run'] === undefined) complain('run', '--resume needs the name of the run');
      return;
    }
    const settings = givenOf(input, choices);
    checkEffects(input, { ...defaults, ...settings }, complain);
    checkRequest(learner, input, withUsual(input, settings), env, complain);
  });
  // The flag decides which variables are parsed, so it is looked up before parsing. OFFBEAT_RESUME is not looked up:
  // with it the learner's variables count at a resume too.
  const taken = argv.includes('--resume') ? {} : learnersOwn(env);
  const nameOf = (key: string) =>
    environmentName(upService, key) in taken
      ? environmentName('learner', key)
      : settingName(upService, key);
  const all = { ...env, ...taken };
  const values: Readonly<Record<string, unknown>> = loadConfig(
    ...([schema, upService, argv, all, nameOf, elsewhere] as const),
  );

  const settings = givenOf(values, choices);
  const given: Partial<UpConfig> = givenOf(values, UpConfig.shape);
  const config = withKey(UpConfig.parse({ actors: usualActorsOfRun(given), ...given }), env);
  const complete = config.resume ? settings : withEnd(withUsual(given, settings));
  return { config, given, settings: complete };
}

/** Settings of the learner that its launcher chooses if they are not given and then passes on as flags, or from which it derives others. */
const chosenHere = [
  ...[...limits, 'data', 'schedule', 'groupsPerBatch', 'numMinibatches', 'evalEveryVersions'],
  ...['advantage', 'maxrlUntil'],
  ...['stopPatienceSeconds', 'trainerClass', 'publishAdapters', 'maxStepsOffPolicy', 'loraRank'],
  ...['adapterStore', 'evalProblems'],
];

/**
 * The learner's own variables of the settings `chosenHere`, renamed to the launcher's variables. Otherwise the flags
 * that the launcher passes on would override them. Only for a new run: a resumed one has its stored settings.
 */
function learnersOwn(env: Environment): Environment {
  const own = chosenHere.flatMap((key) => {
    const [ours, its] = [environmentName(upService, key), environmentName('learner', key)];
    return env[ours] || !env[its] ? [] : [[ours, env[its]] as const];
  });
  return Object.fromEntries(own);
}

/** Settings of a service that its launcher decides, or that would be the same for several processes. */
const ofLauncher = /^(?:name|splits|run|host|port|health|http|nats|checkpointDir)/;

/**
 * Names the environment variables for a flag that only services have. A user may try such a flag because the error of
 * a service names it. Services get the environment of this process, so the variables work.
 *
 * @param shapes the settings of the services, by their names.
 * @param learner the settings of the learner, which a command has or leaves out for a reason.
 */
export function variablesOf(
  shapes: Readonly<Record<string, z.core.$ZodShape>>,
  learner: z.ZodObject,
): Elsewhere {
  const known = new Set([...Object.keys(UpConfig.shape), ...Object.keys(learner.shape)]);
  return (flag) => {
    const found = Object.entries(shapes).flatMap(([service, shape]) => {
      const key = Object.keys(shape).find((each) => kebab(each) === flag);
      const isItsOwn = key !== undefined && !ofLauncher.test(key) && !known.has(key);
      return isItsOwn ? { service, variable: environmentName(service, key) } : [];
    });
    if (found.length === 0) return undefined;
    const services = found.map(({ service }) => `offbeat ${service}`).join(' and ');
    const variables = found.map(({ variable }) => variable).join(' and ');
    return `it is a flag of ${services}: set ${variables} in the environment`;
  };
}

/** The rules that join several flags: the launcher's own and the learner's. */
export function checkRequest(
  learner: z.ZodObject,
  config: Partial<UpConfig>,
  settings: UpRequest['settings'],
  env: Environment,
  complain: (key: string, message: string) => void,
): void {
  checkAddresses(config, settings, env, complain);
  if (settings['windowPolicy'] === 'tokens') checkAdoption(config, complain);
  const all = { ...withEnd(settings), run: 'any' };
  const { error } = learner.safeParse(all, { error: plainWords });
  for (const { path, message } of error?.issues ?? []) complain(String(path[0]), message);
}

/** The values of `choices` that were given. */
function givenOf(values: Readonly<Record<string, unknown>>, choices: object) {
  return Object.fromEntries(
    Object.keys(choices)
      .filter((key) => values[key] !== undefined)
      .map((key) => [key, values[key]]),
  );
}

/** The actors check it too, but only once everything has started. */
function checkAdoption(
  { inFlightUpdates, sampler = 'onnx', segmentTokens = 0 }: Partial<UpConfig>,
  complain: (key: string, message: string) => void,
): void {
  const why = '--window-policy tokens needs answers that adopt new versions while they are sampled';
  if (inFlightUpdates === false)
    complain('inFlightUpdates', `${why}; remove --no-in-flight-updates`);
  if (sampler !== 'onnx' && segmentTokens === 0) {
    complain('segmentTokens', `${why}; with --sampler ${sampler} give one, such as 256`);
  }
}

/** Refuses settings of a new run that would do nothing. A run that was begun with them goes on. */
function checkEffects(
  {
    dashboard,
    dashboardPort,
    evalActors = 0,
    backendUrl,
    sampler,
    samplingApiKey,
  }: Partial<UpConfig>,
  settings: UpRequest['settings'],
  complain: (key: string, message: string) => void,
): void {
  const { evalProblems, evalEveryVersions, data } = settings;
  const { zeroVariance, stopZeroVariance = 0, checkpointDir } = settings;
  const { warmupSteps = 0, maxSteps, promptStyle, promptLanguage = 'en' } = settings;
  if (maxSteps !== undefined && Number(warmupSteps) > Number(maxSteps)) {
    complain(
      'warmupSteps',
      `the learning rate would never reach its peak within --max-steps ${Number(maxSteps)}; choose fewer`,
    );
  }
  if (checkpointDir !== undefined && backendUrl === undefined) {
    complain(
      'checkpointDir',
      'it names the folder where the checkpoints of --backend-url are mounted here; those of the local backend are in runs/NAME/checkpoints; remove it',
    );
  }
  if (samplingApiKey !== undefined && backendUrl !== undefined && sampler !== 'tinker') {
    complain('samplingApiKey', 'only actors with --sampler tinker use it; remove it');
  }
  if (dashboard === false && dashboardPort !== undefined) {
    complain('dashboardPort', '--no-dashboard serves no page; remove one of the two');
  }
  if (promptLanguage !== 'en' && String(promptStyle).endsWith('.json')) {
    complain(
      'promptLanguage',
      'the file of --prompt-style has its words in one language; remove one of the two',
    );
  }
  if (Number(evalEveryVersions) > 0 && evalProblems === 0 && data === undefined) {
    complain(
      'evalEveryVersions',
      '--eval-problems 0 leaves no problem to evaluate; remove one of the two',
    );
  }
  const { shaping, formatScore, ticketsAhead } = settings;
  if (Number(formatScore ?? 0) > 0 && (shaping === 'none' || shaping === 'random')) {
    complain('formatScore', `--shaping ${shaping} does not reward the form; remove one of the two`);
  }
  if (ticketsAhead !== undefined && data !== undefined) {
    complain('ticketsAhead', '--data trains on examples, which need no tickets; remove it');
  }
  if (evalActors > 0 && evalProblems === 0) {
    complain(
      'evalActors',
      '--eval-problems 0 gives them nothing to evaluate; remove one of the two',
    );
  }
  if (zeroVariance === 'train' && stopZeroVariance !== 0) {
    complain(
      'stopZeroVariance',
      '--zero-variance train skips no group that it could count; remove one of the two',
    );
  }
}

/** A server of the user's own needs what only the user knows; our own has it. */
function checkAddresses(
  config: Partial<UpConfig>,
  { streamReplicas }: UpRequest['settings'],
  env: Environment,
  complain: (key: string, message: string) => void,
): void {
  if (Number(streamReplicas ?? 1) > 1 && config.natsUrl === undefined) {
    complain('streamReplicas', "the run's own NATS server is a single one; add --nats-url");
  }
  const { backendUrl, apiKey, samplingApiKey, modelDir, natsUrl, natsKeys, natsTls } = config;
  if (config.loraAlpha !== undefined && backendUrl !== undefined) {
    complain('loraAlpha', 'the server of --backend-url decides it; remove one of the two');
  }
  if (natsKeys !== undefined && natsUrl === undefined) {
    complain(
      'natsKeys',
      "add --nats-url, the server that they are for; the run's own server makes its keys",
    );
  }
  if (natsTls && natsUrl !== undefined) {
    complain(
      'natsTls',
      "it is for the run's own server; write --nats-url=tls://… for TLS to yours",
    );
  }
  if (backendUrl === undefined) {
    if (apiKey !== undefined) complain('apiKey', 'add --backend-url, the server that it is for');
    if (samplingApiKey !== undefined) {
      complain('samplingApiKey', 'add --backend-url, the server that it is for');
    }
    return;
  }
  if (keyOf(config, env) === undefined) {
    complain('apiKey', '--backend-url needs it; TINKER_API_KEY will do, too');
  }
  if (modelDir === undefined) {
    complain('modelDir', '--backend-url needs the directory of the model that it serves');
  }
}

function withoutDefault(field: z.ZodType): z.ZodType {
  let inner = field;
  while (inner instanceof z.ZodDefault || inner instanceof z.ZodOptional) {
    inner = inner.unwrap() as z.ZodType;
  }
  return inner;
}
