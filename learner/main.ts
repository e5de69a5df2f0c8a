import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connectBroker } from '../shared/broker/connect.js';
import type { RunLimits } from '../shared/broker/run-layout.js';
import { type Environment, loadConfig } from '../shared/service/config.js';
import { evaluationTickets } from '../shared/run/evaluation/evaluator.js';
import { givenUpCode } from '../shared/base/exit-codes.js';
import { makeOutputFolder } from '../shared/base/make-folder.js';
import { isAbort } from '../shared/base/task-scope.js';
import { checkModelDirectory, readModelDirectory } from '../shared/model/model-directory.js';
import { loadTokenizer } from '../shared/model/tokenizer.js';
import { ticketBound } from '../shared/rl/capacity.js';
import { fitToModel, offPolicyFields } from '../shared/run/hyperparameters.js';
import { RunConfigStore } from '../shared/run/run-config-store.js';
import { digestFor } from '../shared/run/run-data.js';
import { largestGroupBytes } from '../shared/wire/rollout-group.js';
import { runService, type ServiceContext } from '../shared/service/run-service.js';
import { checkPrompts } from '../shared/tasks/check-prompts.js';
import { openTask, taskSpec } from '../shared/tasks/registry.js';
import { writeWhenRoom } from '../shared/service/telemetry/disk-room.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import { serveHealth } from '../shared/service/telemetry/health-server.js';
import { type FittedConfig, LearnerConfig, runConfig } from './config.js';
import { difficultiesOf } from './tickets/difficulty-mix.js';
import { graceAfter, TrainingClock } from './session/time-limits.js';
import { chooseModel, readConfig, settleConfig } from './checkpoints/run-identity.js';
import { assertKnownToNats, findTraces } from './checkpoints/traces.js';
import { Meter } from './cost/meter.js';
import { RunWatch } from './report/run-watch.js';
import { summarize, writeSummary } from './report/summary.js';
import { withRecovery } from './session/recovery.js';
import { runSession, type SessionResult } from './session/session.js';
import { canaryTexts } from './publish/canary-source.js';
import { supervisedPlan } from './supervised/batch-plan.js';
import { printError } from '../shared/service/telemetry/print-error.js';

/** The learner service: issues tickets, trains on the scored groups, publishes policy versions. */
export async function main(argv: readonly string[], env: Environment): Promise<void> {
  await runService('learner', async (context) => {
    const settings = loadConfig(LearnerConfig, 'learner', argv, env);
    try {
      await learn(settings, context);
    } catch (caught) {
      // Stopped while waiting, before there was anything to save.
      if (!isAbort(caught, context.signal)) throw caught;
      process.exitCode = settings.stoppedExitCode;
    }
  });
}

async function learn(given: LearnerConfig, { log, signal: stop }: ServiceContext): Promise<void> {
  const startedAt = performance.now();
  await checkModelDirectory(given.modelDir);
  let missing: string | undefined = 'connecting to NATS';
  let trouble: () => string | undefined = () => undefined; // of the broker
  // Before it connects, which may take longer than a startup probe allows.
  const unready = () => trouble() ?? missing;
  await using health = await serveHealth(given.healthHost, given.healthPort, unready);
  log.info({ run: given.run, healthPort: health.port }, 'started');
  // The broker and the backend stay usable for a while after `stop`, since the last checkpoint needs them.
  const leaseMs = 1_000 * given.leaseSeconds;
  using grace = graceAfter(stop, given);
  const { signal } = grace;
  const broker = await connectBroker({
    ...given,
    client: `learner ${given.name}`,
    identity: { role: 'learner' },
    ackWaitMs: leasesOf(leaseMs),
    connectTimeoutMs: 1_000 * given.startPatienceSeconds,
    log,
    signal,
  });
  await using _broker = broker;
  trouble = () => broker.trouble;

  missing = 'reading the model and the data';
  const material = await readMaterial(given, log);
  const { settings, directory, spec, dataset, supervised } = material;

  missing = 'another learner leads this run';
  await using leadership = await broker.lead(settings.name, runLimits(settings), stop, {
    renewEveryMs: leaseMs / 12,
    expiresMs: leaseMs / 2,
  });
  missing = 'connecting to the backend';
  using runWatch = new RunWatch(broker, log);
  const clock = new TrainingClock(settings.maxMinutes ?? Infinity, () => performance.now() / 1_000);
  const meter = new Meter(() => performance.now() / 1_000);
  const runDir = settings.runDir ?? join('runs', settings.run);
  await makeOutputFolder(runDir, '--run-dir');
  const configFile = join(runDir, 'config.json');

  const result = await withRecovery(
    { ...settings, log, stop, signal, leadership, progress: () => broker.ledger.read() },
    async (client, scope) => {
      missing = 'opening the run';
      const name = chooseModel(client.models, settings);
      const traces = await findTraces({ broker, runDir, log });
      assertKnownToNats(settings.run, traces);
      const hasBegun = traces.inNats.length > 0;
      const copy = hasBegun ? await readConfig(configFile, settings.run) : undefined;
      const store = new RunConfigStore(broker);
      const inNats = await store.get();
      const digest = digestFor((inNats ?? copy)?.model.digest, directory);
      const model = { name, digest };
      const found = { model, task: spec, datasetDigest: dataset.digest, examples: supervised };
      const config = settleConfig(runConfig(settings, found), inNats, copy);
      const announce = async () => {
        if (inNats === undefined) await store.put(config);
        await writeWhenRoom('config.json', { log, signal: stop }, () =>
          writeFile(configFile, `${JSON.stringify(config, undefined, 2)}\n`),
        );
        missing = undefined;
      };
      return runSession({
        settings,
        config,
        announce,
        dataset,
        difficulties: material.difficulties,
        supervised,
        runWatch,
        vocabSize: directory.config.vocabSize,
        canaryTexts: material.canaryTexts,
        runDir,
        traces,
        broker,
        client,
        leadership,
        scope,
        clock,
        meter,
        stop,
        log,
      });
    },
  );

  const wallSeconds = (performance.now() - startedAt) / 1_000;
  const summary = summarize({ run: settings.run, wallSeconds, ...result });
  // The event comes first: a learner that has lost its lease is refused here and leaves the file to its successor.
  await broker.events.emit({ v: 1, at: Date.now(), kind: 'end', summary });
  await writeSummary(runDir, summary, { log, signal });
  log.info({ reason: result.reason }, 'ended');
  process.stdout.write(`${JSON.stringify(summary)}\n`);
  const message = giveUpText(settings, result);
  if (message === undefined) {
    if (result.reason === 'stopped') process.exitCode = settings.stoppedExitCode;
    return;
  }
  log.fatal(message);
  printError(message);
  process.exitCode = givenUpCode;
}

/**
 * Reads what a run trains with: the base model, the task and its data. Nothing of the run is stored before this
 * succeeds, so that it can begin under its name with other settings.
 */
async function readMaterial(given: LearnerConfig, log: Logger) {
  const directory = await readModelDirectory(given.modelDir);
  const spec = await taskSpec(given);
  const task = openTask(spec);
  const settings = fitToModel(given, directory.config, spec.prompt);
  const dataset = await task.load();
  if (dataset.leakedRows > 0) {
    log.warn({ rows: dataset.leakedRows }, 'rows left out: a held-out problem asks the same');
  }
  const difficulties = settings.curriculum === 'signal' ? difficultiesOf(dataset.train) : undefined;
  const { maxPositions } = directory.config;
  const tokenizer = await loadTokenizer(directory);
  const found = { task, dataset, tokenizer, maxPositions };
  if (settings.data === undefined || settings.evalProblems > 0) {
    checkPrompts({ ...found, modelDir: settings.modelDir });
  }
  const supervised = await supervisedPlan(settings, found);
  if (supervised !== undefined && supervised.leftOut.problems > 0) {
    const { checked, byReason } = supervised.leftOut;
    const reasons = Object.fromEntries(byReason);
    log.warn({ checked, reasons }, 'problems left out of training');
  }
  if (supervised !== undefined && supervised.uncompared > 0) {
    const { uncompared: examples } = supervised;
    log.warn({ examples }, 'examples compared with held-out problems only by their exact text');
  }
  return {
    ...{ directory, spec, settings, dataset, difficulties, supervised },
    canaryTexts: canaryTexts({ ...found, seed: settings.seed }),
  };
}

/** By which the queues of the run are sized. */
function runLimits(settings: FittedConfig): RunLimits {
  const { maxStepsOffPolicy } = offPolicyFields(settings.maxStepsOffPolicy);
  return {
    trainTickets: ticketBound(maxStepsOffPolicy, settings.groupsPerBatch),
    // Room for a whole evaluation: otherwise unanswered evaluation tickets would block training tickets.
    evalTickets: evaluationTickets(
      Math.max(1, settings.evalProblems),
      settings.evalSamples,
      settings.groupSize,
    ),
    replicas: settings.streamReplicas,
    largestGroupBytes: largestGroupBytes({
      groupSize: settings.groupSize,
      sampling: { maxTokens: settings.maxTokens },
    }),
  };
}

/** Why the run was given up and what may help; undefined if it was not given up. */
function giveUpText(
  { learningRate, run, data }: FittedConfig,
  { divergence, noSignalStreak }: SessionResult,
): string | undefined {
  if (noSignalStreak !== undefined) {
    return (
      `the last ${noSignalStreak.groups} groups had no variance, so there was nothing to learn from; their mean reward was ` +
      `${Number(noSignalStreak.reward.toPrecision(3))}. If that is the highest possible reward, the task is learned: use harder problems. ` +
      'If it is low, use easier problems, a larger --group-size, --shaping or a stronger model. The checkpoint is from the last step.'
    );
  }
  if (divergence === undefined) return undefined;
  const { step, reason, checkpointStep, cause } = divergence;
  if (cause === 'actor') {
    return (
      `training diverged at step ${step}: ${reason}. The checkpoint is from step ${checkpointStep}, before the divergence. ` +
      'Check the model directory, the release, the hardware and the sampler of that actor ' +
      '(docs/metrics.md, the audit of logprobs, has the reasons for a quarantine), and restart it under another --name; ' +
      'then the same command resumes from the checkpoint.'
    );
  }
  const others =
    data === undefined
      ? 'a lower --max-steps-off-policy or a --mask'
      : '--warmup-steps or larger batches';
  return (
    `training diverged at step ${step}: ${reason}. The checkpoint is from step ${checkpointStep}, before the divergence; ` +
    `the same command resumes from it. A new run may do better with a --learning-rate below ${learningRate}, ` +
    `${others}; run ${run} keeps its settings.`
  );
}

/** The ack wait of each consumer: a message is redelivered once its holder has been silent that long. */
function leasesOf(ms: number) {
  const ofTickets = { 'tickets.train': ms, 'tickets.eval': ms };
  return { ...ofTickets, rollouts: ms, 'scored.train': ms, 'scored.eval': ms };
}
