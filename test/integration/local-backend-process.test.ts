import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ServiceProcess } from '../support/service-process.js';
import { tinyModel } from '../support/tiny-model.js';

describe('the local backend as a process', { timeout: 120_000 }, () => {
  it('the local backend serves API and health from its environment alone and ends when asked to', async () => {
    await using model = await tinyModel();
    await using backend = startBackend([], {
      LOCAL_BACKEND_API_KEY: 'tml-process-key',
      LOCAL_BACKEND_PORT: '0',
      LOCAL_BACKEND_MODEL_DIR: model.path,
      LOCAL_BACKEND_CHECKPOINT_DIR: join(model.path, 'checkpoints'),
    });
    const { url } = await backend.says(({ msg }) => msg === 'listening');
    await backend.says(({ msg }) => msg === 'ready');
    assert.equal((await backend.ask('/readyz')).status, 200);
    const capabilities = await fetch(`${String(url)}/api/v1/get_server_capabilities`, {
      headers: { 'x-api-key': 'tml-process-key' },
    });
    assert.match(await capabilities.text(), /"max_context_length":64/);
    const answered = 'route="GET /api/v1/get_server_capabilities",status="200"';
    assert.equal(await backend.metric(`local_backend_requests_total{${answered}}`), 1);
    assert.equal(await backend.stop('SIGTERM'), 0);
    assert(!JSON.stringify(backend.log).includes('tml-process-key'));
  });

  it('the local backend names every wrong setting and ends with 2', async () => {
    await using backend = startBackend(['--port', '70000', '--api-key', 'secret']);
    assert.equal(await backend.exitCode(), 2);
    assert.match(backend.errors, /--port .*70000/);
    assert.match(backend.errors, /--api-key .*tml-/);
  });

  it('the local backend names the unsupported file of a model directory', async () => {
    await using model = await tinyModel();
    const flags = ['--port', '0', '--api-key', 'tml-key1', '--checkpoint-dir', model.path];
    await using backend = startBackend([...flags, '--model-dir', join(model.path, 'none')]);
    assert.equal(await backend.exitCode(), 2);
    assert.match(backend.errors, /none\/config\.json/);
  });
});

/** A local backend in its own process. */
function startBackend(flags: readonly string[], environment?: NodeJS.ProcessEnv): ServiceProcess {
  return new ServiceProcess('local-backend', flags, environment);
}
