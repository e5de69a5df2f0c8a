import type { Member } from './fleet.js';
import { freePort } from './free-port.js';
import type { ServiceName } from './load-schema.js';
import { packageRoot } from '../../shared/package-root.js';
import { asFlags, type UpConfig, type UpRequest } from './up-config.js';

/** Where the processes of a run find one another. */
export interface RunPlaces {
  readonly run: string;
  readonly runFolder: string;
  readonly checkpointFolder: string;
  readonly natsUrl: string;
  readonly backend: { readonly url: string; readonly apiKey: string };
}

/** Lower ranks stop first: the learner saves a checkpoint while the backend and NATS still work. */
export const stopRanks = { learner: 0, workers: 1, backend: 2, nats: 3 };

/** A checkpoint of a large model is uploaded before the learner ends. */
const learnerGraceMs = 60_000;
export const graceMs = 10_000;

/** The local backend, which the others need before they start. */
export function backendMember(
  config: Pick<UpConfig, 'modelDir' | 'modelName'>,
  { backend, checkpointFolder }: Pick<RunPlaces, 'backend' | 'checkpointFolder'>,
): Member {
  return {
    name: 'local-backend',
    whenItEnds: 'restarts', // at the same port; the learner restores its run there
    stopRank: stopRanks.backend,
    stopGraceMs: graceMs,
    command: serviceCommand('local-backend', {
      flags: {
        host: '127.0.0.1',
        port: new URL(backend.url).port,
        'checkpoint-dir': checkpointFolder,
        ...modelFlags(config),
      },
      env: { LOCAL_BACKEND_API_KEY: backend.apiKey },
    }),
  };
}

/** The reward service and the actors: all can die and come back without loss. */
export function workerMembers(
  config: Pick<UpConfig, 'actors' | 'evalActors' | 'sampler' | 'modelDir'>,
  places: Pick<RunPlaces, 'run' | 'natsUrl' | 'backend'>,
): Member[] {
  const { natsUrl, run, backend } = places;
  const joining = { 'nats-url': natsUrl, run };
  const modelDir = config.modelDir === undefined ? {} : { 'model-dir': config.modelDir };
  const kind = {
    whenItEnds: 'restarts',
    stopRank: stopRanks.workers,
    stopGraceMs: graceMs,
  } as const;
  const samplesByBackend = config.sampler === 'tinker';
  const actor = (name: string, splits: 'both' | 'train' | 'eval'): Member => ({
    ...kind,
    name,
    command: serviceCommand('actor', {
      flags: {
        ...joining,
        ...modelDir,
        name,
        splits,
        sampler: config.sampler,
        ...(samplesByBackend && { 'backend-url': backend.url }),
      },
      env: samplesByBackend ? { ACTOR_API_KEY: backend.apiKey } : {},
    }),
  });
  const { actors, evalActors } = config;
  const forAll = Array.from({ length: actors }, (_, i) =>
    actor(`actor-${i}`, evalActors === 0 ? 'both' : 'train'),
  );
  const forEvals = Array.from({ length: evalActors }, (_, i) => actor(`eval-actor-${i}`, 'eval'));
  const rewards: Member = {
    ...kind,
    name: 'reward-service',
    command: serviceCommand('reward-service', {
      flags: { ...joining, ...modelDir, name: 'reward-service' },
    }),
  };
  return [rewards, ...forAll, ...forEvals];
}

/** The learner, told what to train by `settings`. */
export function learnerMember(
  config: UpConfig,
  places: RunPlaces,
  settings: UpRequest['settings'],
): Member {
  return {
    name: 'learner',
    whenItEnds: 'finishes',
    stopRank: stopRanks.learner,
    stopGraceMs: learnerGraceMs,
    command: serviceCommand('learner', {
      flags: {
        'nats-url': places.natsUrl,
        run: places.run,
        name: 'learner',
        'run-dir': places.runFolder,
        'backend-url': places.backend.url,
        ...modelFlags(config),
      },
      more: asFlags(settings),
      env: { LEARNER_API_KEY: places.backend.apiKey },
    }),
  };
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

/** Keys travel by environment: flags are there for everybody to see in the process list. */
function serviceCommand(
  service: ServiceName,
  {
    flags,
    more = [],
    env = {},
  }: {
    flags: Readonly<Record<string, string>>;
    more?: readonly string[];
    env?: Readonly<Record<string, string>>;
  },
): Member['command'] {
  return async () => {
    const healthPort = await freePort();
    const words = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
    return {
      file: process.execPath,
      args: [
        '--enable-source-maps',
        `${packageRoot}dist/deploy/local/cli.js`,
        service,
        ...[...words, '--health-host=127.0.0.1', `--health-port=${healthPort}`],
        ...more,
      ],
      env,
      healthUrl: `http://127.0.0.1:${healthPort}`,
    };
  };
}
