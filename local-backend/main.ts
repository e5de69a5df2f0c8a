import { once } from 'node:events';
import { loadConfig } from '../shared/service/config.js';
import { runService } from '../shared/service/run-service.js';
import { serveHealth } from '../shared/service/telemetry/health-server.js';
import { LocalBackendConfig } from './config.js';
import { startLocalBackend } from './local-backend.js';

/** The embedded Tinker server as a process of its own. */
export async function main(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  await runService('local-backend', async ({ log, signal }) => {
    const config = loadConfig(LocalBackendConfig, 'local-backend', argv, env);
    let isLoaded = false;
    await using health = await serveHealth(config.healthHost, config.healthPort, () =>
      isLoaded ? { isReady: true } : { isReady: false, reason: 'the model is being loaded' },
    );
    await using backend = await startLocalBackend({ ...config, log, signal });
    log.info({ url: backend.url, healthPort: health.port, model: config.modelName }, 'listening');

    const stopped = signal.aborted ? Promise.resolve() : once(signal, 'abort');
    await Promise.race([backend.loaded, backend.died, stopped]);
    if (signal.aborted) return;
    isLoaded = true;
    log.info({ threads: config.threads }, 'ready');
    await Promise.race([backend.died, stopped]);
  });
}
