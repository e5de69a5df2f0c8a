import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { DiskWatch } from '../processes/disk-watch.js';
import { fileLogger } from '../processes/file-logger.js';
import { Fleet, type Member } from '../processes/fleet.js';
import { followRun, type Goal } from './progress.js';
import {
  backendMember,
  graceMs,
  learnerMember,
  ownBackendPlace,
  runIdentities,
  stopRanks,
  usualConcurrency,
  workerMembers,
  type BackendPlace,
  type RunPlaces,
} from '../processes/members.js';
import type { NatsPlace } from '../processes/service-command.js';
import { environmentName } from '../../shared/service/config.js';
import type { NatsBinary } from '../nats-server/binary.js';
import { accessWith } from '../nats-server/keys.js';
import { type ServerTrouble, watchJetStream } from '../nats-server/jetstream-watch.js';
import { startNats } from '../nats-server/start.js';
import type { RunFolder } from '../run-folder.js';
import type { Screen } from './screen.js';
import type { StopSignals } from '../processes/stop-signals.js';
import { readyMs, type UpConfig, type UpRequest } from './up-config.js';

interface TrainOptions {
  readonly request: UpRequest;
  readonly run: string;
  readonly folder: RunFolder;
  readonly natsBinary: NatsBinary | undefined; // undefined where --nats-url was given
  readonly screen: Screen;
  readonly stop: StopSignals;
  /** Called once all services are ready; its failure ends the run. */
  readonly onReady?: (() => Promise<void>) | undefined;
}

/**
 * A run from its first process to its last. Returns when the learner has finished or the user has asked to
 * stop; no process is left then, nor when it throws.
 *
 * @throws {FleetError} when a process ended that the run cannot do without.
 */
export async function train(options: TrainOptions): Promise<void> {
  const { run, folder, screen, stop } = options;
  const { config, settings } = options.request;
  await using disk: DiskWatch = new DiskWatch({
    folder: folder.path,
    ask: () => fleet.diskTrouble(),
    onFull: (reason) => {
      screen.warn(`${reason}. The run waits and continues by itself when there is room.`);
    },
    onRoom: () => {
      screen.note('the disk has room again, the run continues');
      // On a full disk nats-server may have switched JetStream off, or hang: 2.9.10 then ends only by SIGKILL.
      void fleet.renew(natsName, 2_000);
    },
  });
  await using fleet: Fleet = new Fleet({
    logFolder: folder.logs,
    report: screen.warn,
    hurry: stop.hurry,
    disk,
  });
  const over = new AbortController();
  const signal = AbortSignal.any([stop.stop, fleet.failed, over.signal]);
  const deadlineMs = readyMs(config);

  const backend = await backendPlace(config);
  const ownBackend =
    config.backendUrl === undefined
      ? backendMember(config, { backend, checkpointFolder: folder.checkpoints })
      : undefined;
  // It loads its model while NATS starts. The learner waits for it; its end shows as the fleet's failure.
  if (ownBackend !== undefined) void fleet.start(ownBackend);

  const nats =
    config.natsUrl === undefined
      ? await startOwnNats(options, fleet, deadlineMs)
      : { natsUrl: config.natsUrl, keyFolder: config.natsKeys };
  const log = fileLogger('up', fleet.logPath('up'));
  const identity = { role: 'observer' } as const;
  const connecting = connectBroker({
    natsUrl: nats.natsUrl,
    ...accessWith(nats.keyFolder, identity),
    run,
    client: 'up',
    identity,
    log,
    signal,
  });
  await using broker = await connecting.catch((caught: unknown) => {
    fleet.failed.throwIfAborted(); // then the wait was aborted by the end of the backend
    throw caught;
  });
  const places: RunPlaces = {
    run,
    runFolder: folder.path,
    checkpointFolder: folder.checkpoints,
    nats,
    backend,
  };

  const workers = workersOf(options.request, places);
  let trainedSeconds = 0;
  const learner = learnerMember(config, places, settings, () => trainedSeconds);
  const [finished] = [learner, ...workers].map((member) => fleet.start(member));

  const { dashboardPort: port, modelDir } = config;
  const openPage = async () => {
    // Imported while the services start.
    const { openLiveDashboard } = await import('../dashboard/live-dashboard.js');
    return openLiveDashboard({ broker, modelDir, port, log, keepIn: folder });
  };
  await using page = config.dashboard ? await openPage() : undefined;
  if (page !== undefined) screen.note(`dashboard at ${page.url}`);
  const names = [...(ownBackend === undefined ? [] : [ownBackend]), learner, ...workers].map(
    ({ name }) => name,
  );
  const renewNats = async (trouble: ServerTrouble) => {
    if (disk.reason !== undefined) return; // it is renewed when there is room
    const isRenewed = await fleet.renew(natsName, 2_000);
    if (isRenewed) screen.warn(`nats-server ${serverTroubles[trouble]}; it is started again`);
  };
  const watching = Promise.all([
    config.natsUrl === undefined ? watchJetStream(broker, renewNats, signal) : undefined,
    fleet.ready(names, deadlineMs, signal).then(async () => {
      if (signal.aborted) return;
      screen.note(`${names.length} services are ready`);
      await options.onReady?.();
    }),
    followRun(broker, {
      goal: goalOf(settings),
      screen,
      signal,
      onTrained: (seconds) => (trainedSeconds = seconds),
    }),
  ]);
  try {
    await Promise.race([finished, watching]);
    fleet.failed.throwIfAborted();
  } finally {
    over.abort();
    await watching.catch(() => undefined); // the race or the failure has reported it
    if (config.natsUrl === undefined && stop.stop.aborted && !fleet.failed.aborted) {
      await untilJetStreamIsOn({ broker, renewNats, disk, fleet, hurry: stop.hurry });
    }
  }
}

const natsName = 'nats-server';

const serverTroubles: Record<ServerTrouble, string> = {
  off: 'has switched JetStream off, as it does when a write finds no room',
  silent: 'does not answer, as 2.9.10 may when a write finds no room',
};

async function startOwnNats(
  { request, run, natsBinary, folder, screen, stop }: TrainOptions,
  fleet: Fleet,
  deadlineMs: number,
): Promise<NatsPlace> {
  if (natsBinary === undefined) throw new Error('neither a nats-server nor --nats-url');
  const name = natsName;
  const { natsTls: withTls } = request.config;
  const identities = runIdentities(request.config);
  const settings = { run, identities, withTls, deadlineMs, deadlineFlag: '--ready-seconds' };
  const start = (signal: AbortSignal, port?: number) =>
    startNats(natsBinary.path, folder.nats, fleet.logPath(name), { ...settings, signal, port });
  const nats = await start(stop.stop);
  const port = Number(new URL(nats.url).port); // where users look for it
  const member = { stopRank: stopRanks.nats, stopGraceMs: graceMs };
  fleet.adopt(name, nats.process, member, async (signal) => (await start(signal, port)).process);
  screen.note(`nats-server ${natsBinary.version} at ${nats.url}`);
  return { natsUrl: nats.url, keyFolder: nats.keyFolder };
}

/** The reward service and the actors. Examples need none, except to evaluate. */
function workersOf({ config, settings }: UpRequest, places: RunPlaces): Member[] {
  if (settings['data'] !== undefined && settings['evalProblems'] === 0) return [];
  return workerMembers(
    { ...config, concurrency: concurrencyOf(config, settings) },
    places,
    settings,
  );
}

/** The groups that each actor samples at once; `auto` or undefined where the actor decides. */
function concurrencyOf(config: UpConfig, settings: UpRequest['settings']): UpConfig['concurrency'] {
  const { concurrency: given } = config;
  if (typeof given === 'number') return given;
  const isSetElsewhere = process.env[environmentName('actor', 'concurrency')] !== undefined;
  if (given === undefined && isSetElsewhere) return undefined;
  return usualConcurrency(config, settings) ?? given; // none for engines, whose actors find out
}

/** How long a stop waits until all writers have noticed that the disk has room again. */
const roomNoticedMs = 10_000;
/** How long a stop waits for nats-server to offer JetStream again. */
const jetStreamBackMs = 60_000;
/** How long nats-server may give no answer then. */
const silentMs = 8_000;

/**
 * Waits for JetStream, which the learner needs to save when it is asked to end. Does not wait while the disk is full.
 */
async function untilJetStreamIsOn(options: {
  readonly broker: Broker;
  readonly renewNats: (trouble: ServerTrouble) => Promise<void>;
  readonly disk: DiskWatch;
  readonly fleet: Fleet;
  readonly hurry: AbortSignal;
}): Promise<void> {
  const { broker, renewNats, disk, fleet, hurry } = options;
  const within = (ms: number) => AbortSignal.any([hurry, AbortSignal.timeout(ms)]);
  if (!(await disk.hasRoomNow(within(roomNoticedMs)))) return;
  await fleet.renewed(); // until then the old server may answer that it has JetStream
  const polling = { pollMs: 250, silentMs, untilOn: true };
  await watchJetStream(broker, renewNats, within(jetStreamBackMs), polling);
}

async function backendPlace(config: UpConfig): Promise<BackendPlace> {
  const { backendUrl: url, apiKey, samplingApiKey } = config;
  if (url === undefined || apiKey === undefined) return await ownBackendPlace();
  return { url, apiKey, samplingApiKey };
}

function goalOf(settings: UpRequest['settings']): Goal {
  const { maxSteps, maxMinutes, epochs } = settings;
  return {
    ...(typeof epochs === 'number' && { epochs }),
    ...(typeof maxSteps === 'number' && { maxSteps }),
    ...(typeof maxMinutes === 'number' && { maxMinutes }),
  };
}
