import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { sha256 } from '../../shared/base/bytes.js';
import type { Member } from './fleet.js';
import type { Identity } from '../../shared/broker/permissions.js';
import { freePort } from './free-port.js';
import { identitiesOf } from '../nats-server/keys.js';
import { ticketBound } from '../../shared/rl/capacity.js';
import {
  batching,
  type OffPolicyBound,
  offPolicyFields,
} from '../../shared/run/hyperparameters.js';
import { isEngine } from '../../shared/wire/actor-lease.js';
import { asFlags, type UpConfig, type UpRequest } from '../up/up-config.js';
import { natsEnvironment, type NatsPlace, serviceCommand } from './service-command.js';

/** A Tinker server, and the keys to it. */
export interface BackendPlace {
  readonly url: string;
  readonly apiKey: string;
  /** The key that actors get instead, if the server has one that may only sample. */
  readonly samplingApiKey?: string | undefined;
}

/** Where a local backend of our own will be. Its keys keep other users of this machine away, and actors from training. */
export async function ownBackendPlace(): Promise<BackendPlace> {
  const key = () => `tml-${randomBytes(16).toString('hex')}`;
  return { url: `http://127.0.0.1:${await freePort()}`, apiKey: key(), samplingApiKey: key() };
}

/** Where the processes of a run find one another. */
export interface RunPlaces {
  readonly run: string;
  readonly runFolder: string;
  readonly checkpointFolder: string;
  readonly nats: NatsPlace;
  readonly backend: BackendPlace;
}

/** Lower ranks stop first: the learner saves a checkpoint while the backend and NATS still work. */
export const stopRanks = { learner: 0, workers: 1, backend: 2, nats: 3 };

/**
 * Saves memory in processes that compute with a model of the user's, which may be large. Once the C library has freed
 * a block of some megabytes, it keeps later blocks of that size; with the threshold it returns every larger block to
 * the system. It also keeps freed memory apart for each thread; with the arena limit all threads share two arenas.
 * docs/performance.md has what both save.
 */
function memoryEnvironment({ modelDir }: Pick<UpConfig, 'modelDir'>): Record<string, string> {
  if (modelDir === undefined) return {};
  return { MALLOC_MMAP_THRESHOLD_: String(2 ** 19), MALLOC_ARENA_MAX: '2' };
}

/**
 * How long the learner may take to finish its step and to save: on a CPU the passes that the backend has begun take minutes with a
 * published model. A second Ctrl-C ends the wait.
 */
const usualStopPatienceSeconds = 300;
/** For its files and its last messages, after that. */
const closingMs = 30_000;
export const graceMs = 10_000;

/** The local backend, which the learner waits for. */
export function backendMember(
  config: Pick<UpConfig, 'modelDir' | 'modelName'> & Partial<Pick<UpConfig, 'loraAlpha'>>,
  { backend, checkpointFolder }: Pick<RunPlaces, 'backend' | 'checkpointFolder'>,
): Member {
  return {
    name: 'local-backend',
    whenItEnds: 'restarts', // at the same port; the learner restores its run there
    stopRank: stopRanks.backend,
    stopGraceMs: graceMs,
    command: () =>
      serviceCommand('local-backend', {
        flags: {
          host: '127.0.0.1',
          port: new URL(backend.url).port,
          'checkpoint-dir': checkpointFolder,
          ...(config.loraAlpha !== undefined && { 'lora-alpha': String(config.loraAlpha) }),
          ...modelFlags(config),
        },
        env: {
          ...memoryEnvironment(config),
          LOCAL_BACKEND_API_KEY: backend.apiKey,
          ...(backend.samplingApiKey !== undefined && {
            LOCAL_BACKEND_SAMPLING_API_KEY: backend.samplingApiKey,
          }),
        },
      }),
  };
}

/**
 * The reward service and the actors: each can be restarted without loss.
 *
 * @param settings of the learner.
 */
export function workerMembers(
  config: Pick<UpConfig, 'actors' | 'evalActors' | 'sampler' | 'modelDir'> &
    Partial<
      Pick<
        UpConfig,
        | 'inFlightUpdates'
        | 'onAdoption'
        | 'requireCanary'
        | 'segmentTokens'
        | 'concurrency'
        | 'engineUrl'
        | 'backendUrl'
        | 'adapterSources'
      >
    >,
  places: Pick<RunPlaces, 'run' | 'nats' | 'backend'>,
  settings: UpRequest['settings'] = {},
): Member[] {
  const { nats, run, backend } = places;
  const modelDir = config.modelDir === undefined ? {} : { 'model-dir': config.modelDir };
  const kind = {
    whenItEnds: 'restarts',
    stopRank: stopRanks.workers,
    stopGraceMs: graceMs,
  } as const;
  const samplesByBackend = config.sampler === 'tinker';
  const adapterSources = adapterSourcesOf(config, places, settings);
  const actor = (name: string, splits: 'both' | 'train' | 'eval'): Member => ({
    ...kind,
    name,
    command: () =>
      serviceCommand('actor', {
        flags: {
          run,
          ...modelDir,
          name,
          splits,
          sampler: config.sampler,
          ...(samplesByBackend && { 'backend-url': backend.url }),
          ...(config.engineUrl !== undefined && { 'engine-url': config.engineUrl }),
          ...(samplesByBackend && config.backendUrl === undefined && { 'sampler-class': 'fp32' }),
          ...(config.onAdoption !== undefined && { 'on-adoption': config.onAdoption }),
          ...(adapterSources !== '' && { 'adapter-sources': adapterSources }),
          ...(config.segmentTokens !== undefined && {
            'segment-tokens': String(config.segmentTokens),
          }),
          ...(config.concurrency !== undefined && { concurrency: String(config.concurrency) }),
        },
        more: [
          ...(config.inFlightUpdates === false ? ['--no-in-flight-updates'] : []),
          ...(config.requireCanary === undefined
            ? []
            : asFlags({ requireCanary: config.requireCanary })),
        ],
        env: {
          ...memoryEnvironment(config),
          ...natsEnvironment('actor', nats, { role: 'actor', actor: name }),
          ...(samplesByBackend && { ACTOR_API_KEY: backend.samplingApiKey ?? backend.apiKey }),
        },
      }),
  });
  const splitOfAll = config.evalActors === 0 ? 'both' : 'train';
  const { forAll, forEvals } = actorNames(config);
  const rewards: Member = {
    ...kind,
    name: 'reward-service',
    command: () =>
      serviceCommand('reward-service', {
        flags: { run, ...modelDir, name: 'reward-service' },
        env: natsEnvironment('reward-service', nats, { role: 'reward' }),
      }),
  };
  return [
    rewards,
    ...forAll.map((name) => actor(name, splitOfAll)),
    ...forEvals.map((name) => actor(name, 'eval')),
  ];
}

/** Where actors may fetch adapters from: what the user names, and the place that the learner was given. */
function adapterSourcesOf(
  { adapterSources }: Partial<Pick<UpConfig, 'adapterSources'>>,
  { run, backend }: Pick<RunPlaces, 'run' | 'backend'>,
  { adapterStore }: UpRequest['settings'],
): string {
  const sources = adapterSources === undefined ? [] : [adapterSources];
  if (adapterStore === 'link') sources.push(new URL(backend.url).origin);
  else if (typeof adapterStore === 'string' && isAbsolute(adapterStore)) {
    sources.push(join(adapterStore, run));
  }
  return sources.join(',');
}

/** The most groups that one actor uses well: an embedded sampler has one thread, a backend batches more. */
const mostGroups = { onnx: 16, tinker: 32 } as const;

/**
 * The groups that each actor samples at once, unless the user has set it: all actors together as many as the capacity law allows
 * tickets, so that none of them lies idle and no actor takes those of another.
 *
 * @param settings of the learner, as far as they are given.
 * @returns undefined for engines, whose actors find out.
 */
export function usualConcurrency(
  { actors, sampler }: Pick<UpConfig, 'actors' | 'sampler'>,
  settings: UpRequest['settings'],
): number | undefined {
  if (isEngine(sampler)) return undefined;
  const { maxStepsOffPolicy: bound, groupsPerBatch } = settings;
  const { maxStepsOffPolicy } = offPolicyFields(
    (bound ?? batching.maxStepsOffPolicy.fallback) as OffPolicyBound,
  );
  const groups = Number(groupsPerBatch ?? batching.groupsPerBatch.fallback);
  const tickets = ticketBound(maxStepsOffPolicy, groups);
  return Math.min(mostGroups[sampler], Math.ceil(tickets / actors));
}

/** How many actors there are, and how they are called. */
interface ActorNaming extends Pick<UpConfig, 'actors' | 'evalActors'> {
  /**
   * What the names of actors begin with. At an engine, an actor unloads the adapters of earlier ones of its run and name, so
   * others must be called otherwise.
   */
  readonly actorsNamed?: string;
}

/** The identities that the run's NATS server accepts. */
export function runIdentities(config: ActorNaming): Identity[] {
  const { forAll, forEvals } = actorNames(config);
  return identitiesOf([...forAll, ...forEvals]);
}

function actorNames({ actors, evalActors, actorsNamed = 'actor' }: ActorNaming) {
  return {
    forAll: Array.from({ length: actors }, (_, i) => `${actorsNamed}-${i}`),
    forEvals: Array.from({ length: evalActors }, (_, i) => `eval-actor-${i}`),
  };
}

/**
 * The learner, which trains what `settings` say.
 *
 * @param trainedSeconds how long earlier learners of this start have trained, which leaves the next one less of
 *   `--max-minutes`: it counts only its own time.
 */
export function learnerMember(
  config: UpConfig,
  places: RunPlaces,
  settings: UpRequest['settings'],
  trainedSeconds: () => number = () => 0,
): Member {
  const stopPatienceSeconds = Number(settings['stopPatienceSeconds'] ?? usualStopPatienceSeconds);
  return {
    name: 'learner',
    whenItEnds: 'finishes',
    stopRank: stopRanks.learner,
    stopGraceMs: 1_000 * stopPatienceSeconds + closingMs,
    command: () =>
      serviceCommand('learner', {
        flags: {
          run: places.run,
          name: learnerName(places.runFolder),
          'run-dir': places.runFolder,
          'backend-url': places.backend.url,
          // Our own backend is started at the same time.
          ...(config.backendUrl === undefined && {
            'start-patience-seconds': String(config.readySeconds),
          }),
          ...(config.backendUrl === undefined &&
            settings['trainerClass'] === undefined && { 'trainer-class': 'fp32' }),
          // No other actors are expected; one that joins all the same asks.
          ...(config.sampler === 'tinker' &&
            settings['publishAdapters'] === undefined && { 'publish-adapters': 'asked' }),
          ...modelFlags(config),
        },
        more: asFlags({
          ...settings,
          ...timeLeft(settings, trainedSeconds()),
          stopPatienceSeconds,
        }),
        env: {
          ...natsEnvironment('learner', places.nats, { role: 'learner' }),
          LEARNER_API_KEY: places.backend.apiKey,
        },
      }),
  };
}

/** The time that is left, at least a moment: a learner needs a limit above 0, and with this one it ends at once. */
function timeLeft(
  { maxMinutes }: UpRequest['settings'],
  trainedSeconds: number,
): { maxMinutes?: number } {
  if (maxMinutes === undefined || trainedSeconds === 0) return {};
  const left = Number(maxMinutes) - trainedSeconds / 60;
  return { maxMinutes: Math.max(0.001, Number(left.toFixed(3))) };
}

/**
 * The learner's name as holder of the lease. A restart takes over at once, by the same name; a run of the same name in another
 * folder or on another machine must wait.
 */
export function learnerName(runFolder: string): string {
  return `learner-${sha256(`${hostname()} ${resolve(runFolder)}`).slice(0, 8)}`;
}

function modelFlags({
  modelDir,
  modelName,
}: Pick<UpConfig, 'modelDir' | 'modelName'>): Record<string, string> {
  return {
    ...(modelDir !== undefined && { 'model-dir': modelDir }),
    ...(modelName !== undefined && { 'model-name': modelName }),
  };
}
