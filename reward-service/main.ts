import { TaskScope } from '../shared/base/task-scope.js';
import { connectBroker } from '../shared/broker/connect.js';
import { type Environment, loadConfig } from '../shared/service/config.js';
import { RunConfigStore } from '../shared/run/run-config-store.js';
import { runService } from '../shared/service/run-service.js';
import { serveHealth } from '../shared/service/telemetry/health-server.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import { RewardServiceConfig, scoreKey } from './config.js';
import { serveScores } from './http-server.js';
import { loadJudge } from './judge.js';
import { scoreRollouts } from './score-rollouts.js';

/** The reward service: scores the rollouts of a run. Replicas share the work and keep no state. */
export async function main(argv: readonly string[], env: Environment): Promise<void> {
  await runService('reward-service', async ({ log, signal }) => {
    const config = loadConfig(RewardServiceConfig, 'reward-service', argv, env);
    await TaskScope.run(signal, [(ending) => serve(config, log, ending)]);
    log.info('stopped');
  });
}

async function serve(config: RewardServiceConfig, log: Logger, signal: AbortSignal): Promise<void> {
  const { name, healthHost, healthPort, httpHost, httpPort } = config;
  const key = await scoreKey(config);
  let missing: () => string | undefined = () => 'connecting to NATS';
  await using health = await serveHealth(healthHost, healthPort, () => missing());
  log.info({ name, run: config.run, healthPort: health.port }, 'started');

  await using broker = await connectBroker({
    ...config,
    client: name,
    identity: { role: 'reward' },
    connectTimeoutMs: 1_000 * config.startPatienceSeconds,
    log,
    signal,
  });
  missing = () => 'waiting for the learner to write the run configuration';
  const run = await new RunConfigStore(broker).wait(signal);

  missing = () => 'loading the problems and the tokenizer';
  const judge = await loadJudge(run, config);
  await using scores = await serveScores({
    host: httpHost,
    port: httpPort,
    key,
    judge,
    log,
    signal,
  });
  missing = () => (signal.aborted ? 'shutting down' : broker.trouble);
  log.info({ httpPort: scores.port }, 'joined the run');

  await scoreRollouts({ broker, judge, scorer: name, log, signal });
}
