import { connectBroker } from '../shared/broker/connect.js';
import { type Environment, loadConfig } from '../shared/service/config.js';
import { aborted, TaskScope } from '../shared/base/task-scope.js';
import { RunConfigStore } from '../shared/run/run-config-store.js';
import { wastedTokens } from '../shared/service/telemetry/drops.js';
import { checkPrompts } from '../shared/tasks/check-prompts.js';
import { runService } from '../shared/service/run-service.js';
import { serveHealth } from '../shared/service/telemetry/health-server.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import { measuredActivity } from './activity.js';
import { ActorConfig } from './config.js';
import { EarlyCancel } from './early-cancel.js';
import { joinRun, requireAdoption } from './join-run.js';
import { openSampler } from './sampler/open-sampler.js';
import { CanaryCheck } from './canary-check.js';
import { leaseOf, renewLease } from './lease.js';
import { PolicyFollower } from './policy-follower.js';
import { sampleWhileTrusted } from './sample-tickets.js';

/** The actor service: leases tickets, samples their groups with the newest policy, delivers them. */
export async function main(argv: readonly string[], env: Environment): Promise<void> {
  await runService('actor', async ({ log, signal }) => {
    const config = loadConfig(ActorConfig, 'actor', argv, env);
    await TaskScope.run(signal, [(ending) => serve(config, log, ending)]);
  });
}

/** Runs the actor with a checked configuration until it stops. */
async function serve(config: ActorConfig, log: Logger, signal: AbortSignal): Promise<void> {
  let missing: () => string | undefined = () => 'connecting to NATS';
  await using health = await serveHealth(config.healthHost, config.healthPort, () => missing());
  log.info({ actor: config.name, run: config.run, healthPort: health.port }, 'started');

  await using broker = await connectBroker({
    ...config,
    client: config.name,
    identity: { role: 'actor', actor: config.name },
    connectTimeoutMs: 1_000 * config.startPatienceSeconds,
    log,
    signal,
  });
  missing = () => 'waiting for the learner to write the run configuration';
  const runConfig = await new RunConfigStore(broker).wait(signal);

  requireAdoption(runConfig, config);
  missing = () => 'loading the dataset and the model';
  const joined = await joinRun(runConfig, config);
  const waitingFor = (reason: string) => {
    missing = () => reason;
  };
  const opening = { config, runConfig, joined, broker, log, signal, waitingFor };
  await using sampler = await openSampler(opening);
  const { modelDir } = config;
  const { maxTokens } = runConfig.sampling;
  checkPrompts({ ...joined, modelDir, room: { maxContext: sampler.maxContext, maxTokens } });
  const earlyCancel = new EarlyCancel(runConfig.windowPolicy === 'tokens' ? 'newest' : 'oldest');
  const expelled = new AbortController();
  const canaries = new CanaryCheck(sampler, config.samplerClass ?? sampler.usualArithmetic);
  const policies = new PolicyFollower({
    store: broker.policy,
    sampler,
    canaries,
    requireCanary: config.requireCanary,
    log,
    onPublished: (manifest) => {
      earlyCancel.published(manifest);
      if (expelled.signal.aborted || !manifest.quarantined?.includes(config.name)) return;
      log.error(quarantined);
      expelled.abort();
    },
  });
  missing = () =>
    expelled.signal.aborted ? quarantined : (broker.trouble ?? sampler.trouble ?? policies.trouble);

  let groups = 0;
  const activity = measuredActivity(sampler.limit);
  const lease = () =>
    leaseOf(
      { actor: config.name, sampler, policies, activity, groups, abandoned: wastedTokens() },
      Date.now(),
    );
  const { task, dataset, tokenizer } = joined;
  const { maxContext } = sampler;
  const sampling = {
    broker,
    actor: config.name,
    prompts: { task, dataset, tokenizer, maxContext },
    sampler,
    policies,
    canaries,
    activity,
    earlyCancel,
    inFlightUpdates: config.inFlightUpdates,
    splits: config.splits === 'both' ? (['train', 'eval'] as const) : [config.splits],
    log,
    onGroup: () => groups++,
  };
  log.info({ sampler: sampler.kind, model: runConfig.model.name }, 'joined the run');
  await TaskScope.run(signal, [
    (ending) => sampler.guard(ending),
    (ending) => policies.follow(ending),
    (ending) => renewLease(broker.actors, lease, log, ending),
    async (ending) => {
      await sampleWhileTrusted(sampling, AbortSignal.any([ending, expelled.signal]));
      await aborted(ending); // stays idle, because an exit would make the supervisor restart it in a loop
    },
  ]);
}

const quarantined =
  'the learner has quarantined this actor, because its logprobs are not those of the policy: check its model and release, and start it under another name';
