import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { connectBroker, shownAddress } from '../../shared/broker/connect.js';
import {
  ConfigError,
  type Environment,
  environmentName,
  kebab,
  loadConfig,
  settingName,
} from '../../shared/service/config.js';
import { UserError } from '../../shared/base/errors.js';
import { checkLogLevel } from '../../shared/service/telemetry/logger.js';
import {
  checkModelDirectory,
  embeddedModelPath,
  readModelDirectory,
} from '../../shared/model/model-directory.js';
import type { ModelFolder } from '../../shared/model/model-weights.js';
import {
  embeddedRate,
  type Fitted,
  type Fitting,
  fitToModel,
} from '../../shared/run/hyperparameters.js';
import { openTask, TaskSettings, taskSpec, type TaskSpec } from '../../shared/tasks/registry.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { Task } from '../../shared/tasks/task.js';
import type { TrainingExamples } from '../../shared/tasks/examples/training-examples.js';
import { services, type ServiceName } from '../services.js';
import { countTrained } from '../trained-problems.js';
import { accessWith } from '../nats-server/keys.js';
import { silentLogger } from '../processes/file-logger.js';
import { checkDashboardPort } from '../processes/free-port.js';
import {
  backendMember,
  learnerMember,
  runIdentities,
  workerMembers,
  type RunPlaces,
} from '../processes/members.js';
import { findStart, type StartingPoint } from './start-from.js';
import { runSettings, UpConfig, upService, type UpRequest } from './up-config.js';

interface PreflightOptions {
  readonly request: UpRequest;
  readonly run: string;
  readonly env: Environment;
  readonly report: (line: string) => void; // receives a line before each slow step
  readonly signal: AbortSignal;
}

/**
 * Checks everything that a start needs and that can be checked beforehand: the model, the settings that come
 * from the environment, the data, the page's port, and the servers that are the user's own. Nothing is written,
 * so that the corrected command may have the same name. What only some runs need is imported when it is needed,
 * since every start waits for this check.
 *
 * @returns the settings that fit the model, for the run to keep, and the weights that `--from` names.
 * @throws {UserError} naming what is wrong and the remedy.
 */
export async function preflight(
  options: PreflightOptions,
): Promise<{ readonly fitted: Fitted; readonly start: StartingPoint | undefined }> {
  const { request, run, env, report, signal } = options;
  const { config } = request;
  const { natsUrl, backendUrl } = config;
  checkLogLevel(env);
  const model = await checkModelDirectory(config.modelDir ?? embeddedModelPath);
  const settings = await checkSettings(request, run, env);
  if (config.dashboard) await checkDashboardPort(config.dashboardPort);
  if (natsUrl !== undefined) report(`connecting to NATS at ${shownAddress(natsUrl)}`);
  if (backendUrl !== undefined) report(`connecting to the backend at ${backendUrl}`);
  const task = await taskSpec(TaskSettings.parse(settings));
  // Of the learner's schema, which is loaded by name.
  const given = settings as unknown as TrainingSettings;
  const { learningRate, maxTokens } = fitToModel(given, model.config, task.prompt);
  const fitted = { learningRate, maxTokens };
  reportFitted(given, fitted, report);
  const start = await startOf(config, given);
  const [{ dataset, examples }] = await Promise.all([
    loadData(task, { ...given, ...fitted }, model),
    checkNats(config, run, signal),
    checkBackend(config, signal),
  ]);
  const isShipped = resolve(config.modelDir ?? embeddedModelPath) === resolve(embeddedModelPath);
  if (isShipped && examples === undefined) reportCut(openTask(task), dataset, maxTokens, report);
  if (dataset.leakedRows > 0) {
    report(
      `${dataset.leakedRows} rows of the data are left out of training: a held-out problem asks the same`,
    );
  }
  if (examples !== undefined) {
    await reportExamples(examples, report);
  }
  if (start !== undefined) await reportTrained(start, task, dataset, report);
  return { fitted, start };
}

/** For this many milliseconds problems are solved, to see how long their answers are. */
const solvingMs = 20;

/**
 * Reports that answers are cut off. For the shipped model, which has a token for each character.
 *
 * @param now milliseconds of a clock that only rises; replaced in tests.
 */
export function reportCut(
  task: Pick<Task, 'solution'>,
  { train }: Dataset,
  maxTokens: number,
  report: PreflightOptions['report'],
  now: () => number = performance.now.bind(performance),
): void {
  const lengths: number[] = [];
  const deadline = now() + solvingMs;
  for (const problem of train) {
    const solved = task.solution?.(problem);
    if (typeof solved === 'string') lengths.push(solved.length + 1); // with the token that ends it
    if (now() > deadline) break;
  }
  const cut = lengths.filter((length) => length > maxTokens);
  if (cut.length === 0) return;
  report(
    `--max-tokens ${maxTokens} cuts off the solutions of ${cut.length} of the ${lengths.length} problems that were tried: give at least ${Math.max(...cut)}`,
  );
}

/** Reports held-out problems that the run of `--from` was trained on, and what is not known of it. */
async function reportTrained(
  { run, config }: StartingPoint,
  task: TaskSpec,
  { test }: Dataset,
  report: PreflightOptions['report'],
): Promise<void> {
  if (config.task.name !== task.name) return;
  const { trained, notCompared } = await countTrained(run, config, test);
  for (const text of notCompared) report(text);
  if (trained === 0) return;
  report(
    `${run} was trained on ${trained} of the ${test.length} held-out problems, so they do not measure what is new; ` +
      'hold out the same ones as that run did (--test-size, --dataset-seed), or others',
  );
}

async function reportExamples(
  { leftOut, uncompared, train }: TrainingExamples,
  report: PreflightOptions['report'],
): Promise<void> {
  const { leftOutText } = await import('../../shared/tasks/examples/training-examples.js');
  const text = leftOutText(leftOut);
  if (text !== undefined) report(`left out of training ${text}`);
  if (uncompared > 0) {
    report(
      `${uncompared} of the ${train.size} examples are compared with the held-out problems only by their exact text: ` +
        'they do not ask in the form of --prompt-style',
    );
  }
}

/** Some of the learner's settings. */
interface TrainingSettings extends Fitting {
  readonly seed: number;
  readonly loraRank: number;
  readonly data?: string;
  readonly heldOutExamples?: number;
  readonly from?: string;
}

/**
 * Reads the problems, and the examples that the run is to train on.
 *
 * @returns the dataset, and the examples of a run that trains on them.
 */
async function loadData(
  spec: TaskSpec,
  { data, seed, heldOutExamples: heldOut, maxTokens }: TrainingSettings & Fitted,
  model: ModelFolder,
): Promise<{ readonly dataset: Dataset; readonly examples?: TrainingExamples }> {
  const task = openTask(spec);
  const dataset = await task.load();
  if (data === undefined) return { dataset };
  const { loadTokenizer } = await import('../../shared/model/tokenizer.js');
  const { openExamples } = await import('../../shared/tasks/examples/training-examples.js');
  const tokenizer = await loadTokenizer(model);
  const { maxPositions } = model.config;
  const { stop } = task;
  const found = { task, dataset, tokenizer, maxPositions, stop };
  return { dataset, examples: await openExamples(data, { ...found, seed, heldOut, maxTokens }) };
}

/** The weights of the run that `--from` names; a path is the learner's to check. */
async function startOf(
  { runsDir, modelDir = embeddedModelPath, loraAlpha, backendUrl }: UpConfig,
  { from, loraRank }: TrainingSettings,
): Promise<StartingPoint | undefined> {
  if (from === undefined || from.startsWith('tinker://')) return undefined;
  const digests = await readModelDirectory(modelDir);
  return findStart(from, { runsDir, modelDir, digests, loraRank, loraAlpha, backendUrl });
}

/** Reports what was chosen for a model other than the embedded one, whose defaults the help names. */
function reportFitted(
  given: Fitting,
  { learningRate, maxTokens }: Fitted,
  report: PreflightOptions['report'],
): void {
  if (given.learningRate === undefined && learningRate !== embeddedRate) {
    report(`--learning-rate ${learningRate} is chosen for the width of this model`);
  }
  if (given.maxTokens === undefined && maxTokens !== 20) {
    report(`--max-tokens ${maxTokens} is chosen for this prompt style`);
  }
}

/**
 * Reads the settings of every service as the service itself will, from its environment variables too.
 *
 * @returns those of the learner.
 * @throws {ConfigError} listing the problems of all services, each by the name that the user gave.
 */
async function checkSettings(
  { config, settings }: UpRequest,
  run: string,
  env: PreflightOptions['env'],
): Promise<Readonly<Record<string, unknown>>> {
  const url = 'http://127.0.0.1:1'; // wherever it will be
  const places: RunPlaces = {
    run,
    runFolder: 'folder',
    checkpointFolder: 'checkpoints',
    nats: { natsUrl: 'nats://127.0.0.1:1', keyFolder: undefined },
    backend: { url, apiKey: 'tml-none' },
  };
  const members = [
    learnerMember(config, places, settings),
    ...workerMembers(config, places, settings),
    ...(config.backendUrl === undefined ? [backendMember(config, places)] : []),
  ];
  const problems = new Set<string>(); // two actors have the same
  const all = await Promise.all(
    members.map(async ({ command }) => {
      const { args, env: own } = await command();
      const [name, ...flags] = args.slice(args.findIndex((word) => word.endsWith('cli.js')) + 1);
      const service = name as ServiceName;
      const schema = await services[service].config();
      const ours = service === 'learner' ? runSettings(schema) : {};
      const nameOf = (key: string) => {
        const variable = environmentName(service, key);
        const isFlag = flags.some((word) => word.startsWith(`--${kebab(key)}=`));
        const isVariable = !isFlag && (env[variable] ?? '') !== '';
        const isOurs = key in UpConfig.shape || key in ours;
        return isOurs && !isVariable ? settingName(upService, key) : variable;
      };
      try {
        return loadConfig(schema, service, flags, { ...env, ...own }, nameOf);
      } catch (caught) {
        if (!(caught instanceof ConfigError)) throw caught;
        for (const problem of caught.problems) problems.add(problem);
        return {};
      }
    }),
  );
  if (problems.size > 0) throw new ConfigError(upService, [...problems]);
  return all[0]!;
}

async function checkNats(
  { natsUrl, natsKeys, actors, evalActors }: UpConfig,
  run: string,
  signal: AbortSignal,
): Promise<void> {
  if (natsUrl === undefined) return;
  if (natsKeys !== undefined) {
    const files = runIdentities({ actors, evalActors })
      .filter(({ role }) => role !== 'operator')
      .map((identity) => accessWith(natsKeys, identity).natsNkeySeedFile!);
    const missing = files.find((file) => !existsSync(file));
    if (missing !== undefined) {
      throw new UserError(
        `--nats-keys ${natsKeys} has no ${missing.slice(join(natsKeys, '/').length)}; make the keys of this run with offbeat nats-config --run ${run} --actors ${actors}${evalActors > 0 ? ` --eval-actors ${evalActors}` : ''} --out ${natsKeys}`,
      );
    }
  }
  const identity = { role: 'observer' } as const;
  await using _broker = await connectBroker({
    natsUrl,
    ...accessWith(natsKeys, identity),
    run,
    client: 'up',
    identity,
    log: silentLogger(),
    signal,
  });
}

async function checkBackend(
  { backendUrl: baseUrl, apiKey, modelName }: UpConfig,
  signal: AbortSignal,
): Promise<void> {
  if (baseUrl === undefined || apiKey === undefined) return;
  const { TinkerClient } = await import('../../shared/tinker/client.js');
  await using client = await TinkerClient.connect({ baseUrl, apiKey, log: silentLogger(), signal });
  const served = client.models.map(({ name }) => name);
  if (served.length === 0 || (modelName === undefined && served.length === 1)) return;
  if (modelName !== undefined && served.includes(modelName)) return;
  const found = modelName === undefined ? '' : `, not --model-name ${modelName}`;
  throw new UserError(
    `the backend at ${baseUrl} serves ${served.join(', ')}${found}; choose one with --model-name`,
  );
}
