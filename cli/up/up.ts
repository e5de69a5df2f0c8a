import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import type { z } from 'zod';
import { describeFlags } from '../../shared/service/config-help.js';
import { UserError } from '../../shared/base/errors.js';
import { givenUpCode } from '../../shared/base/exit-codes.js';
import { shownAddress } from '../../shared/broker/connect.js';
import { ConfigError, type Environment } from '../../shared/service/config.js';
import { assertRoom } from '../processes/disk-watch.js';
import { FleetError } from '../processes/fleet.js';
import { lockFolder } from '../../shared/service/folder-lock.js';
import { readLaunch, writeLaunch, resumed } from './resume.js';
import { services } from '../services.js';
import type { NatsBinary } from '../nats-server/binary.js';
import { ensureNatsServer } from '../nats-server/ensure.js';
import { preflight } from './preflight.js';
import {
  checkNewRun,
  createRunFolder,
  findRunFolder,
  removeIfNotBegun,
  runNameAt,
  type RunFolder,
} from '../run-folder.js';
import { createScreen, type Screen } from './screen.js';
import { exitCodes, listenForStop, type StopSignals } from '../processes/stop-signals.js';
import { flagsOfRun, nextText, readSummary, summaryText, summaryTime } from './summary.js';
import { copyStart, newestAdapter, type StartingPoint } from './start-from.js';
import { train } from './train.js';
import { loadUpConfig, type StartCommand, variablesOf } from './load-up-config.js';
import { defaultMinutes, runSettings, UpConfig, upService, type UpRequest } from './up-config.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

/** What `offbeat up` does, and its flags: its own and the learner's. */
export async function upHelp(): Promise<string> {
  const settings = runSettings(await services.learner.config());
  return `offbeat up: trains on this machine.

It starts nats-server, the local backend, the reward service, the actors and the learner as separate
processes, shows progress, prints a summary and ends them all. The files of a run are in runs/NAME, and
--run NAME --resume continues it. Without --max-steps and --max-minutes it trains for ${defaultMinutes} minutes.

How to run it:
${describeFlags(UpConfig.shape, upService, { isAll: false })}

What to train:
${describeFlags(settings, upService)}
`;
}

/**
 * Runs a whole training on this machine and returns its exit code: 0 when the learner finished, the
 * signal's code after Ctrl-C or if the learner alone was stopped, 2 when the user has something to change, 3 when
 * training was given up, else 1. When it returns, none of the processes is left.
 *
 * @throws {UserError} if a flag is wrong, the model cannot be run or a server is unavailable, before
 *   anything was started or written.
 */
export async function up(
  argv: readonly string[],
  env: Environment,
  command?: StartCommand,
): Promise<number> {
  const { request: asked, resumable } = await understand(argv, env, command);
  const { config } = asked;
  const run = config.run ?? runNameAt(new Date());
  if (resumable === undefined) await checkNewRun(config.runsDir, run);
  const screen = openScreen(config.json, env);
  const stop = listenForStop(screen.note, 'stopping: the learner saves a checkpoint first');

  let natsBinary: NatsBinary | undefined;
  let request = asked;
  let start: StartingPoint | undefined;
  try {
    const { note: report } = screen;
    const found = await preflight({ request, run, env, report, signal: stop.stop });
    start = found.start;
    const from = start && { from: start.path, fromRun: start.run };
    request = { ...asked, settings: { ...asked.settings, ...found.fitted, ...from } };
    if (config.natsUrl === undefined) {
      natsBinary = await ensureNatsServer({ env, report: screen.note, signal: stop.stop });
    }
  } catch (caught) {
    if (stop.exitCode() === undefined) throw caught; // else the error is that of a wait that we aborted
  }
  const stopCode = stop.exitCode();
  if (stopCode !== undefined) return stopCode;

  const { folder, lock, isUsers } =
    resumable === undefined
      ? await createRunFolder(config.runsDir, run)
      : { folder: resumable, lock: await lockFolder(resumable.path, 'offbeat up'), isUsers: true };
  using _lock = lock;
  screen.note(`run ${run} in ${folder.path}${resumable === undefined ? '' : ' continues'}`);
  const earlierTime = await summaryTime(folder.summary);
  let hasFailed = true;
  try {
    await assertRoom(folder.path);
    const { apiKey: _key, samplingApiKey: _sampling, ...known } = config; // secrets
    const { resume: _resume, json: _json, ...others } = known; // each start's own
    const { dashboard: _page, dashboardPort: _port, ...launcher } = others;
    const launch = { run, launcher, settings: request.settings };
    const remember = () => writeLaunch(folder.launch, launch);
    // A new run writes its launch file first, so that its folder counts as not begun if the start fails from here on.
    if (resumable === undefined) await remember();
    if (start !== undefined) {
      await copyStart(start, folder);
      screen.note(`it starts from the weights of ${start.run}, with a new optimizer and at step 0`);
    }
    // A resume writes the launch file only once the services are ready. Otherwise the next attempt would inherit
    // settings that cannot start.
    const onReady = resumable === undefined ? undefined : remember;
    await train({ request, run, folder, natsBinary, screen, stop, onReady });
    hasFailed = false;
  } catch (caught) {
    if (caught instanceof FleetError) {
      printError(caught.message);
      return caught.exitCode;
    }
    if (stop.exitCode() === undefined) throw caught; // else as above
    hasFailed = false;
  } finally {
    // A run that ends without our doing, maybe before its first step, is kept.
    const isOurDoing = hasFailed || stop.exitCode() !== undefined;
    if (resumable === undefined && isOurDoing) {
      const hadBegun = await removeIfNotBegun(folder, { keepLogs: hasFailed, isUsers });
      if (hasFailed && !hadBegun) {
        // A server of the user's own may have another run of this name. Then the learner's message has said so.
        const isFree = request.config.natsUrl === undefined;
        const next = isFree ? ': the corrected command may use the same name' : '';
        printError(`the run ${run} had not begun${next}`);
      }
    }
  }
  return await conclude(folder, earlierTime, request, screen, stop);
}

/** The request; for a resumed run, merged with its stored settings. */
async function understand(
  argv: readonly string[],
  env: Environment,
  command: StartCommand | undefined,
): Promise<{ request: UpRequest; resumable: RunFolder | undefined }> {
  const learner = await services.learner.config();
  const request = await readRequest(learner, argv, env, command);
  const { run, runsDir, resume } = request.config;
  if (!resume || run === undefined) return { request, resumable: undefined };
  const resumable = await findRunFolder(runsDir, run);
  const launch = await readLaunch(resumable);
  if (command?.trainsOnExamples === true && launch.settings['data'] === undefined) {
    throw new UserError(
      `the run ${run} does not train on examples; npm start -- ${flagsOfRun(run, runsDir)} --resume continues it`,
    );
  }
  return { request: resumed(learner, request, launch, env), resumable };
}

/** Reads the flags. The settings of all services are loaded only to name where a refused flag belongs. */
async function readRequest(
  ...given: [learner: z.ZodObject, readonly string[], Environment, StartCommand | undefined]
): Promise<UpRequest> {
  try {
    return loadUpConfig(...given);
  } catch (caught) {
    if (!(caught instanceof ConfigError)) throw caught;
    const names = ['actor', 'reward-service', 'local-backend'] as const;
    const shapes = await Promise.all(
      names.map(async (name) => [name, (await services[name].config()).shape] as const),
    );
    return loadUpConfig(...given, variablesOf(Object.fromEntries(shapes), given[0]));
  }
}

/** With --json standard output belongs to the summary alone, and progress is plain lines. */
function openScreen(json: boolean, env: Environment): Screen {
  const plain = { write: (text: string) => process.stderr.write(text) };
  return createScreen({ stream: json ? plain : process.stdout, env, now: Date.now });
}

async function conclude(
  folder: RunFolder,
  earlierTime: number | undefined,
  { config, settings }: UpRequest,
  screen: Screen,
  stop: StopSignals,
): Promise<number> {
  const { json, runsDir, modelDir, backendUrl } = config;
  const exitCode = stop.exitCode();
  if (exitCode !== undefined && !existsSync(folder.logs)) {
    const left = deletion(basename(folder.path), config);
    const there = left === undefined ? '' : ` here; what is on NATS: ${left}`;
    screen.note(`stopped before the run began; nothing of it is kept${there}`);
    return exitCode;
  }
  const summary = await readSummary(folder.summary, earlierTime);
  if (typeof summary === 'string') {
    printError(summary);
    return exitCode ?? 1;
  }
  const isGivenUp = summary.divergence !== undefined || summary.drought !== undefined;
  // A learner may be stopped alone: by an operator, or by a daemon that frees memory.
  const stopCode = exitCode ?? (summary.reason === 'stopped' ? exitCodes.SIGTERM : undefined);
  const end = isGivenUp ? 'given up' : stopCode === undefined ? 'finished' : 'stopped';
  if (stopCode !== undefined && exitCode === undefined) {
    screen.note('the learner got a signal that this process did not get');
  }
  if (json) process.stdout.write(`${JSON.stringify(summary)}\n`);
  else {
    const adapter = backendUrl === undefined ? await newestAdapter(folder) : undefined;
    const weights = { finalRateShare: settings.finalRateShare, adapter };
    const next = nextText(summary, { folder: folder.path, runsDir, modelDir, ...weights });
    screen.note(`${end}:\n${summaryText(summary)}\n\nwhat there is now:\n${next}`);
  }
  return stopCode ?? (isGivenUp ? givenUpCode : 0);
}

/** The command that deletes what a learner has stored on the user's NATS before the run began; undefined if that is our own. */
function deletion(run: string, { natsUrl, natsKeys }: UpConfig): string | undefined {
  if (natsUrl === undefined) return undefined;
  const keys = natsKeys === undefined ? '' : ` --nats-keys ${natsKeys}`;
  return `npx offbeat delete --run ${run} --nats-url ${shownAddress(natsUrl)}${keys} --keep-checkpoints --yes`;
}
