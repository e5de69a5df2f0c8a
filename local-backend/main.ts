import { aborted, TaskScope } from '../shared/base/task-scope.js';
import { type Environment, loadConfig } from '../shared/service/config.js';
import { runService } from '../shared/service/run-service.js';
import { serveHealth } from '../shared/service/telemetry/health-server.js';
import { LocalBackendConfig } from './config.js';
import { startLocalBackend } from './local-backend.js';

/** Runs the embedded Tinker server as its own process. */
export async function main(argv: readonly string[], env: Environment): Promise<void> {
  await runService('local-backend', async ({ log, signal }) => {
    const config = loadConfig(LocalBackendConfig, 'local-backend', argv, env);
    let isLoaded = false;
    await using health = await serveHealth(config.healthHost, config.healthPort, () =>
      isLoaded ? undefined : 'the model is loading',
    );
    await using scope = new TaskScope(signal);
    await using backend = await startLocalBackend({ ...config, log, scope });
    log.info({ url: backend.url, healthPort: health.port, model: config.modelName }, 'listening');

    scope.start(async (ending) => {
      await backend.loaded;
      if (ending.aborted) return;
      isLoaded = true;
      log.info({ threads: config.threads }, 'ready');
    });
    await aborted(scope.signal);
    if (!signal.aborted) scope.signal.throwIfAborted();
  });
}
