import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
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
import { kebab, type Environment } from '../../shared/service/config.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { adapterSources } from '../../shared/run/adapters/allowed-sources.js';
import { isEngine, SamplerKind } from '../../shared/wire/actor-lease.js';
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
    .max(86_400)
    .default(180)
    .describe('how long the processes may take to become ready.'),
};

/** How many actors there are by default: one keeps an engine busy, and each has adapters of its own there. */
export function usualActors(sampler: SamplerKind | undefined): number {
  return isEngine(sampler) ? 1 : 2;
}

/**
 * How many actors a run has by default. Where few processors sample and train, one actor makes more steps than two: it
 * samples more rollouts at once, and takes each version once (docs/performance.md).
 */
export function usualActorsOfRun(
  { sampler = 'onnx', backendUrl }: Pick<Partial<UpConfig>, 'sampler' | 'backendUrl'>,
  processors = availableParallelism(),
): number {
  const doesBoth = sampler === 'onnx' && backendUrl === undefined;
  return doesBoth && processors < 4 ? 1 : usualActors(sampler);
}

/** How long processes may take to become ready, in whole ms, as timers need it. */
export function readyMs({ readySeconds }: Pick<UpConfig, 'readySeconds'>): number {
  return Math.ceil(1_000 * readySeconds);
}

/** How to run everything on one machine; what to train is in the learner's own settings. */
export const UpConfig = z.object({
  run: RunName.optional().describe('name of the run and of its folder; by default the time.'),
  resume: z
    .boolean()
    .default(false)
    .describe('continue --run from its last checkpoint, with its own settings.'),
  runsDir: string.default('runs').describe('where the folders of the runs are.'),
  actors: processSettings.actors.describe(
    'number of actor processes; 1 by default with --sampler vllm or sglang, and where fewer than four processors sample ' +
      'with onnx and train.',
  ),
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
  requireCanary: z
    .boolean()
    .optional()
    .describe('actors refuse versions that were published without a canary, which nothing proves.'),
  adapterSources: adapterSources
    .optional()
    .describe(
      'where the actors may fetch adapters from besides NATS, separated by commas; a folder of --adapter-store, and with link the address of ' +
        'the backend, are among them by themselves.',
    ),
  segmentTokens: int
    .nonnegative()
    .optional()
    .describe(
      'tokens per call of all samplers but onnx, whose answers adopt a version between two calls; by default, and with 0, the whole answer from one version.',
    ),
  concurrency: z
    .union([z.literal('auto'), int.positive().max(1024)], {
      error: 'expected auto, or a number from 1 to 1024',
    })
    .optional()
    .describe(
      'groups that each actor samples at once; by default, and with auto, all actors together as many as --max-steps-off-policy allows ' +
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
  ...['name', 'runDir', 'healthHost', 'healthPort', 'stoppedExitCode'],
]);

/** The learner's settings that a run may choose: everything but where to find things. */
export function runSettings(learner: z.ZodObject): Record<string, z.core.$ZodType> {
  return Object.fromEntries(Object.entries(learner.shape).filter(([key]) => !decidedHere.has(key)));
}

/** A run without a given limit ends by itself, after long enough to show that it learns. */
export const defaultMinutes = 5;

/** The settings given to `offbeat up`. */
export interface UpRequest {
  readonly config: UpConfig;
  /** What to train: those settings of the learner that were given, checked by its schema. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Those flags of the launcher's own that were given; the others of `config` are defaults. */
  readonly given: Partial<UpConfig>;
}

/** The key of the user's own server may be in a separate environment variable. */
export function withKey(config: UpConfig, env: Environment): UpConfig {
  return config.backendUrl === undefined ? config : { ...config, apiKey: keyOf(config, env) };
}

/** The learner's settings that decide nothing but the figures of the cost: numbers of GPUs and prices. */
export const ofCost = [
  ...['gpusTrainer', 'gpusSampler', 'gpusReward'],
  ...['priceTrainerHour', 'priceSamplerHour', 'priceRewardHour'],
  ...['pricePrefillTokens', 'priceSampledTokens', 'priceTrainedTokens'],
];

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

/**
 * Steps of a quarter of the size of the learner's default: the shipped model learns sooner with them
 * (docs/experiments/settings.md). A part of such a step would be too little work for one call, so each is sent whole.
 * Evaluations come after four times as many steps, so about as often by the clock.
 */
const smallSteps = { groupsPerBatch: 16, numMinibatches: 1, evalEveryVersions: 80 };

/** First many ways to an answer, and in the end one sure one (docs/experiments/settings.md). */
const manyWaysFirst = { advantage: 'maxrl', maxrlUntil: 0.85 };

/** The launcher's own defaults for a new run, which depend on what is trained. */
export function usualSteps(
  { modelDir }: Partial<UpConfig>,
  { data, groupsPerBatch, advantage }: UpRequest['settings'],
): UpRequest['settings'] {
  const isShipped = resolve(modelDir ?? embeddedModelPath) === resolve(embeddedModelPath);
  if (!isShipped || data !== undefined || groupsPerBatch !== undefined) return {};
  return { ...smallSteps, ...(advantage === undefined && manyWaysFirst) };
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
