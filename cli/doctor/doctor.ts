import { describeFlags } from '../../shared/service/config-help.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import type { Environment } from '../../shared/service/config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { shortCommand, type StopSignals } from '../processes/stop-signals.js';
import { backendFindings } from './backend.js';
import { clockFindings, type Clock, machineFindings, readMachine } from './machine.js';
import { addressesIn } from '../../shared/service/config-fields.js';
import { engineFindings } from './engine.js';
import { DoctorConfig, doctorService, loadPlaces, type Places } from './doctor-config.js';
import { finding, ok, type Finding, findingText, verdictText } from './finding.js';
import { modelFindings, runtimeFindings } from './model.js';
import { natsFindings, ownNatsFindings } from './nats.js';
import { portFindings, runsFolderFindings } from './places.js';

export function doctorHelp(): string {
  return `offbeat doctor: checks what training needs, and gives the remedy for each fault.

It checks this machine (Node.js, processor, memory, files, ports, the folder of the runs), NATS with
JetStream (version, limits, the rights of each key), clocks, the backend (its models, calls, losses,
the rank of adapters and how they are downloaded, the tokenizer), engines (vLLM, SGLang: their release,
what they lack, adapters, metrics) and the model directory. Without
--nats-url it tries the nats-server that npm start would use, without --backend-url the runtime of the
local backend. It leaves no files and downloads nothing. Exit code: 0 without errors, even if there
are warnings; 1 with errors.

${describeFlags(DoctorConfig.shape, doctorService)}
`;
}

interface Context {
  readonly places: Places;
  readonly env: Environment;
  readonly log: Logger;
  readonly stop: StopSignals;
}

/**
 * @returns the exit code: 0 without an error among the findings, 1 with one, the signal's code after Ctrl-C.
 * @throws {UserError} listing every flag that is wrong.
 */
export async function doctor(argv: readonly string[], env: Environment): Promise<number> {
  const places = await loadPlaces(argv, env);
  return shortCommand('doctor', undefined, async ({ stop, log }) => {
    const findings: Finding[] = [];
    for (const [check, examine] of checks({ places, env, log, stop })) {
      const found = await examined(check, examine, stop.stop);
      findings.push(...found);
      if (!places.json) process.stdout.write(found.map(findingText).join(''));
    }
    process.stdout.write(places.json ? `${JSON.stringify(findings)}\n` : verdictText(findings));
    return findings.some(({ level }) => level === 'error') ? 1 : 0;
  });
}

type Examination = () => Promise<Finding[]>;

function checks({ places, env, log, stop }: Context): [check: string, Examination][] {
  const { natsUrl, backendUrl, engineUrl, apiKey, modelDir, runsDir } = places;
  const { stop: signal, hurry } = stop;
  const asked = { ...places, log, signal };
  const engines = { urls: addressesIn(engineUrl ?? ''), apiKey: places.engineApiKey, signal };
  return [
    ['machine', async () => machineFindings(await readMachine())],
    ['runs-dir', () => runsFolderFindings(runsDir)],
    ['ports', () => portFindings()],
    ['runtime', runtimeFindings],
    ['model', () => modelFindings(modelDir)],
    [
      'nats',
      () =>
        natsUrl === undefined
          ? ownNatsFindings({ env, log, signal, hurry })
          : natsFindings({ ...asked, natsUrl }),
    ],
    [
      'clock',
      async () =>
        clocksOf(places).length === 0 && natsUrl === undefined
          ? [ok('clock', 'everything is on this machine')]
          : clockFindings(clocksOf(places), signal),
    ],
    ...(backendUrl === undefined
      ? []
      : [['backend', () => withKey(apiKey, { ...asked, backendUrl })] as [string, Examination]]),
    ...(engineUrl === undefined
      ? []
      : [['engine', () => engineFindings(engines)] as [string, Examination]]),
  ];
}

async function withKey(
  apiKey: string | undefined,
  asked: Omit<Parameters<typeof backendFindings>[0], 'apiKey'>,
): Promise<Finding[]> {
  if (apiKey !== undefined) return backendFindings({ ...asked, apiKey });
  return [finding('backend', 'error', 'no key is given', 'backendRefuses')];
}

function clocksOf({ natsMonitoringUrl, backendUrl }: Places): Clock[] {
  return [
    ...(natsMonitoringUrl === undefined
      ? []
      : [{ name: 'NATS', url: new URL('/healthz', natsMonitoringUrl).href }]),
    ...(backendUrl === undefined
      ? []
      : [{ name: 'the backend', url: `${backendUrl.replace(/\/$/, '')}/api/v1/healthz` }]),
  ];
}

/** Runs a check. If it throws, its finding is the error, and the other checks continue. */
async function examined(
  check: string,
  examine: Examination,
  signal: AbortSignal,
): Promise<Finding[]> {
  try {
    return await examine();
  } catch (caught) {
    signal.throwIfAborted();
    const isUsers = caught instanceof UserError;
    return [finding(check, 'error', errorText(caught), isUsers ? 'asItSays' : 'unforeseen')];
  }
}
