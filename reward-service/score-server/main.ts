import { aborted } from '../../shared/base/task-scope.js';
import { type Environment, loadConfig } from '../../shared/service/config.js';
import { runService } from '../../shared/service/run-service.js';
import { openTask, taskSpec } from '../../shared/tasks/registry.js';
import { serveHealth } from '../../shared/service/telemetry/health-server.js';
import { scoreKey } from '../config.js';
import { serveScores } from '../http-server.js';
import { createTextJudge } from '../judge.js';
import { ScoreServerConfig } from './config.js';

/** The score server: scores over HTTP only, without a run or NATS. */
export async function main(argv: readonly string[], env: Environment): Promise<void> {
  await runService('score-server', async ({ log, signal }) => {
    const config = loadConfig(ScoreServerConfig, 'score-server', argv, env);
    const { httpHost, httpPort, healthHost, healthPort } = config;
    const spec = await taskSpec(config);
    const key = await scoreKey(config);
    const judge = createTextJudge(spec, await openTask(spec).load());

    await using health = await serveHealth(healthHost, healthPort, () =>
      signal.aborted ? 'shutting down' : undefined,
    );
    await using scores = await serveScores({
      host: httpHost,
      port: httpPort,
      key,
      judge,
      log,
      signal,
    });
    log.info({ httpPort: scores.port, healthPort: health.port }, 'listening');
    await aborted(signal);
  });
}
