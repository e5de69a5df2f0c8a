import { z } from 'zod';
import {
  engineAddresses,
  httpAddress,
  natsAddress,
  port,
  number,
  string,
  int,
} from '../../shared/service/config-fields.js';
import { natsSettings } from '../../shared/broker/access.js';
import { flagsOf, kebab, loadConfig, type Environment } from '../../shared/service/config.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';
import { adapterSources } from '../../shared/run/adapters/allowed-sources.js';
import { plainWords } from '../../shared/base/plain-words.js';
import { SamplerKind } from '../../shared/wire/actor-lease.js';
import { RunName } from '../../shared/wire/run-name.js';

/** Flags of every command that starts processes for a run: `offbeat up` and `offbeat eval`. */
export const processSettings = {
  actors: int
    .min(1)
    .max(256)
    .default(2)
    .describe('number of actor processes; with --sampler vllm or sglang 1 by default.'),
  sampler: SamplerKind,
  engineUrl: engineAddresses
    .optional()
    .describe(
      'vLLM or SGLang servers of the model, separated by commas; ACTOR_ENGINE_API_KEY is their key.',
    ),
  apiKey: string
    .optional()
    .describe(
      'key for --backend-url; TINKER_API_KEY sets it too, without showing it in the process list.',
    ),
  readySeconds: number
    .positive()
    .default(180)
    .describe('how long the processes may take to become ready.'),
};

/** How to run everything on one machine; what to train is in the learner's own settings. */
export const UpConfig = z.object({
  run: RunName.optional().describe('name of the run and of its folder; by default the time.'),
  resume: z
    .boolean()
    .default(false)
    .describe('continue --run from its last checkpoint, with its own settings.'),
  runsDir: string.default('runs').describe('where the folders of the runs are.'),
  actors: processSettings.actors,
  evalActors: int
    .min(0)
    .max(256)
    .default(0)
    .describe('extra actors for evaluations only; the others then only train.'),
  sampler: processSettings.sampler
    .default('onnx')
    .describe('where actors sample: in their own processes, on the backend, or on --engine-url.'),
  engineUrl: processSettings.engineUrl,
  inFlightUpdates: z
    .boolean()
    .default(true)
    .describe('actors adopt a new version within a group; --no-in-flight-updates: between groups.'),
  onAdoption: z
    .enum(['keep', 'reprefill'])
    .optional()
    .describe(
      'what actors do with the KV cache of a rollout that adopts a version: keep, only with --sampler onnx and the default there, or reprefill, computed again with the new weights.',
    ),
  adapterSources: adapterSources
    .optional()
    .describe(
      'where the actors may fetch adapters from besides NATS; a folder of --adapter-store, and with link the address of ' +
        'the backend, are among them by themselves.',
    ),
  segmentTokens: int
    .nonnegative()
    .optional()
    .describe(
      'tokens per call of all samplers but onnx, whose answers adopt a version between two calls; by default, and with 0, the whole answer from one version.',
    ),
  concurrency: int
    .positive()
    .max(1024)
    .optional()
    .describe(
      'groups that each actor samples at once; by default all actors together as many as --max-steps-off-policy allows ' +
        'tickets, but at most 16 each with --sampler onnx and 32 with tinker; with vllm and sglang the actors find out.',
    ),
  modelDir: string
    .optional()
    .describe('Hugging Face directory of the model; by default the one in this repository.'),
  modelName: string.optional().describe('the model as the backend calls it.'),
  loraAlpha: number
    .positive()
    .optional()
    .describe('alpha of the LoRA adapter on the local backend; by default twice --lora-rank.'),
  backendUrl: httpAddress
    .optional()
    .describe('a running TuFT or Tinker server to train on, instead of the local backend.'),
  apiKey: processSettings.apiKey,
  samplingApiKey: string
    .optional()
    .describe(
      'key for --backend-url that may only sample, for the actors; else they get --api-key.',
    ),
  natsUrl: natsAddress
    .optional()
    .describe('a running NATS server with JetStream, instead of one of this run.'),
  natsKeys: string
    .optional()
    .describe('folder with the keys to --nats-url, as offbeat nats-config writes it.'),
  natsTls: z
    .boolean()
    .default(false)
    .describe(
      "TLS for this run's own NATS server, which listens only on loopback and accepts no passwords.",
    ),
  dashboard: z
    .boolean()
    .default(true)
    .describe('a page on loopback that shows the progress of the run.'),
  dashboardPort: port.default(0).describe('port of that page; 0 picks a free one.'),
  readySeconds: processSettings.readySeconds,
  json: z
    .boolean()
    .default(false)
    .describe('no decoration; the last line of standard output is the summary as JSON.'),
});
export type UpConfig = z.infer<typeof UpConfig>;

/** `offbeat` rather than `up`, since environment variables begin with it: OFFBEAT_ACTORS. */
export const upService = 'offbeat';

/** Learner settings that the launcher decides. */
const decidedHere = new Set<string>([
  ...Object.keys(UpConfig.shape),
  ...Object.keys(natsSettings),
  ...['name', 'runDir', 'healthHost', 'healthPort', 'startPatienceSeconds', 'stoppedExitCode'],
]);

/** The learner's settings that a run may choose: everything but where to find things. */
export function runSettings(learner: z.ZodObject): Record<string, z.core.$ZodType> {
  return Object.fromEntries(Object.entries(learner.shape).filter(([key]) => !decidedHere.has(key)));
}

/** A run without a given limit ends by itself, after long enough to show that it learns. */
export const defaultMinutes = 5;

/** A command that starts a run: `offbeat up` by default. */
export interface StartCommand {
  /** Whether it has a setting of the launcher or of the learner. */
  readonly offers: (key: string) => boolean;
  /** The learner's settings of a new run that are not the learner's own defaults. */
  readonly defaults: Readonly<Record<string, unknown>>;
}

const anything: StartCommand = { offers: () => true, defaults: {} };

/** The settings given to `offbeat up`. */
export interface UpRequest {
  readonly config: UpConfig;
  /** What to train: those settings of the learner that were given, checked by its schema. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Those flags of the launcher's own that were given; the others of `config` are defaults. */
  readonly given: Partial<UpConfig>;
}

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
): UpRequest {
  const offered = (shape: Readonly<Record<string, z.core.$ZodType>>) =>
    Object.fromEntries(Object.entries(shape).filter(([key]) => offers(key)));
  const choices = offered(runSettings(learner));
  const own = offered(UpConfig.shape);
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
    const chosen = { ...defaults, ...givenOf(input, choices) };
    checkEffects(input, chosen, complain);
    checkRequest(learner, input, chosen, env, complain);
  });
  const values: Readonly<Record<string, unknown>> = loadConfig(schema, upService, argv, env);

  const settings = givenOf(values, choices);
  const given: Partial<UpConfig> = givenOf(values, UpConfig.shape);
  const config = withKey(UpConfig.parse(withActors(given)), env);
  const all = config.resume ? settings : withEnd({ ...defaults, ...settings });
  return { config, settings: all, given };
}

/** The rules that join several flags: the launcher's own and the learner's. */
export function checkRequest(
  learner: z.ZodObject,
  config: Partial<UpConfig>,
  settings: UpRequest['settings'],
  env: Environment,
  complain: (key: string, message: string) => void,
): void {
  checkAddresses(config, env, complain);
  if (settings['windowPolicy'] === 'tokens') checkAdoption(config, complain);
  const all = { ...withEnd(settings), run: 'any' };
  const { error } = learner.safeParse(all, { error: plainWords });
  for (const { path, message } of error?.issues ?? []) complain(String(path[0]), message);
}

/** One actor keeps an engine busy, and each has adapters of its own there. */
function withActors(given: Partial<UpConfig>): Partial<UpConfig> {
  const isEngine = given.sampler === 'vllm' || given.sampler === 'sglang';
  return isEngine ? { actors: 1, ...given } : given;
}

/** The key of the user's own server may be in a separate environment variable. */
export function withKey(config: UpConfig, env: Environment): UpConfig {
  return config.backendUrl === undefined ? config : { ...config, apiKey: keyOf(config, env) };
}

/** Each ends a run. */
export const limits = ['maxSteps', 'maxMinutes', 'epochs'] as const;

/** The learner's settings, with an end if they have none, and with a rate that falls towards it. */
export function withEnd(settings: UpRequest['settings']): UpRequest['settings'] {
  const hasEnd = limits.some((limit) => settings[limit] !== undefined);
  const end = settings['data'] === undefined ? { maxMinutes: defaultMinutes } : { epochs: 1 };
  return {
    ...(hasEnd ? {} : end),
    schedule: 'cosine',
    ...settings,
  };
}

/** The values of `choices` that were given. */
function givenOf(values: Readonly<Record<string, unknown>>, choices: object) {
  return Object.fromEntries(
    Object.keys(choices)
      .filter((key) => values[key] !== undefined)
      .map((key) => [key, values[key]]),
  );
}

/** Settings as flags. */
export function asFlags(settings: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(settings).map(([key, value]) =>
    typeof value === 'boolean'
      ? `--${value ? '' : 'no-'}${kebab(key)}`
      : `--${kebab(key)}=${String(value)}`,
  );
}

/** The key of the backend: the flag, else TINKER_API_KEY. */
export function keyOf(
  { apiKey }: { readonly apiKey?: string | undefined },
  env: Environment,
): string | undefined {
  return apiKey ?? (env['TINKER_API_KEY'] || undefined);
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
  { dashboard, dashboardPort, evalActors = 0 }: Partial<UpConfig>,
  { evalProblems }: UpRequest['settings'],
  complain: (key: string, message: string) => void,
): void {
  if (dashboard === false && dashboardPort !== undefined) {
    complain('dashboardPort', '--no-dashboard serves no page; remove one of the two');
  }
  if (evalActors > 0 && evalProblems === 0) {
    complain(
      'evalActors',
      '--eval-problems 0 gives them nothing to evaluate; remove one of the two',
    );
  }
}

/** A server of the user's own needs what only the user knows; our own has it. */
function checkAddresses(
  config: Partial<UpConfig>,
  env: Environment,
  complain: (key: string, message: string) => void,
): void {
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
