import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it } from 'node:test';
import { tinyModel } from '../support/tiny-model.js';
import { until } from '../support/broker.js';

const entry = new URL('../../learner/local-backend/main.js', import.meta.url).href;
const script = `import(${JSON.stringify(entry)}).then(({ main }) => main(process.argv.slice(1), process.env))`;

/** A local backend in a process of its own, killed with its scope. */
class BackendProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  readonly log: Record<string, unknown>[] = [];
  errors = '';

  constructor(flags: readonly string[], environment: Record<string, string> = {}) {
    this.#child = spawn(process.execPath, ['-e', script, '--', ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...environment },
    });
    createInterface(this.#child.stdout!).on('line', (line) => {
      this.log.push(JSON.parse(line) as Record<string, unknown>);
    });
    this.#child.stderr!.on('data', (chunk: Buffer) => (this.errors += chunk.toString()));
    this.#ended = once(this.#child, 'close');
  }

  /** The first log line with this message, once it was written. */
  async logged(msg: string): Promise<Record<string, unknown>> {
    const find = () => this.log.find((line) => line['msg'] === msg);
    await until(() => find() !== undefined || this.#child.exitCode !== null);
    return find() ?? assert.fail(`ended before ${JSON.stringify(msg)}: ${this.errors}`);
  }

  async exitCode(): Promise<number | null> {
    await this.#ended;
    return this.#child.exitCode;
  }

  async stop(): Promise<number | null> {
    this.#child.kill('SIGTERM');
    return this.exitCode();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null) this.#child.kill('SIGKILL');
    await this.#ended;
  }
}

describe('the local backend as a process', { timeout: 120_000 }, () => {
  it('serves API and health from its environment alone, and ends when asked to', async () => {
    await using model = await tinyModel();
    await using backend = new BackendProcess([], {
      LOCAL_BACKEND_API_KEY: 'tml-process-key',
      LOCAL_BACKEND_PORT: '0',
      LOCAL_BACKEND_MODEL_DIR: model.path,
      LOCAL_BACKEND_CHECKPOINT_DIR: join(model.path, 'checkpoints'),
    });
    const { url, healthPort } = await backend.logged('listening');
    await backend.logged('ready');
    const health = `http://127.0.0.1:${String(healthPort)}`;
    assert.equal((await fetch(`${health}/readyz`)).status, 200);
    const capabilities = await fetch(`${String(url)}/api/v1/get_server_capabilities`, {
      headers: { 'x-api-key': 'tml-process-key' },
    });
    assert.match(await capabilities.text(), /"max_context_length":64/);
    const metrics = await (await fetch(`${health}/metrics`)).text();
    assert.match(
      metrics,
      /local_backend_requests_total\{route="GET \/api\/v1\/get_server_capabilities",status="200"\} 1/,
    );
    assert.equal(await backend.stop(), 0);
    assert(!JSON.stringify(backend.log).includes('tml-process-key'));
  });

  it('names every setting that is wrong and ends with 2', async () => {
    await using backend = new BackendProcess(['--port', '70000', '--api-key', 'secret']);
    assert.equal(await backend.exitCode(), 2);
    assert.match(backend.errors, /--port .*70000/);
    assert.match(backend.errors, /--api-key .*tml-/);
  });

  it('names the file of a model directory that cannot be run', async () => {
    await using model = await tinyModel();
    const flags = ['--port', '0', '--api-key', 'tml-key1', '--checkpoint-dir', model.path];
    await using backend = new BackendProcess([...flags, '--model-dir', join(model.path, 'none')]);
    assert.equal(await backend.exitCode(), 2);
    assert.match(backend.errors, /none\/config\.json/);
  });
});
