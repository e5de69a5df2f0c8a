import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { loadConfig } from '../../shared/service/config.js';
import { RewardServiceConfig, scoreKey } from '../../reward-service/config.js';

const load = (argv: string[], env: Record<string, string> = {}) =>
  loadConfig(RewardServiceConfig, 'reward-service', argv, env);

describe("the reward service's settings", () => {
  it('a reward service needs only the name of the run', () => {
    const config = load(['--run', 'a']);
    assert.equal(config.run, 'a');
    assert.equal(config.natsUrl, 'nats://127.0.0.1:4222');
    assert.equal(config.httpHost, '127.0.0.1');
    assert.match(config.name, /./);
  });

  it('a reward service can take its settings from the environment alone, as in a container', () => {
    const config = load([], {
      REWARD_SERVICE_RUN: 'a',
      REWARD_SERVICE_NAME: 'reward-3',
      REWARD_SERVICE_NATS_URL: 'nats://nats:4222',
      REWARD_SERVICE_HTTP_HOST: '0.0.0.0',
      REWARD_SERVICE_HTTP_PORT: '8080',
      REWARD_SERVICE_HTTP_KEY: 'one-two-three-four',
      REWARD_SERVICE_HEALTH_PORT: '8081',
      REWARD_SERVICE_MODEL_DIR: '/models/qwen3',
      REWARD_SERVICE_DATASET_PATH: '/data/problems.jsonl',
    });
    assert.equal(config.name, 'reward-3');
    assert.equal(config.httpPort, 8080);
    assert.equal(config.modelDir, '/models/qwen3');
    assert.equal(config.datasetPath, '/data/problems.jsonl');
  });

  it('a reward service needs a key when other machines can request scores', async () => {
    const complaint =
      /--http-host \(or REWARD_SERVICE_HTTP_HOST\).*--http-key or --http-key-file, or --http-open/;
    for (const host of ['0.0.0.0', '::', '10.0.0.1', 'rewards.example']) {
      assert.throws(() => load(['--run', 'a', '--http-host', host]), complaint, host);
    }
    for (const host of ['127.0.0.1', '127.1.2.3', '::1', 'localhost']) {
      assert.equal(await scoreKey(load(['--run', 'a', '--http-host', host])), undefined);
    }
    const open = ['--run', 'a', '--http-host', '0.0.0.0', '--http-open'];
    assert.equal(await scoreKey(load(open)), undefined);
    const contradiction = [...open, '--http-key', 'one-two-three-four'];
    assert.throws(() => load(contradiction), /--http-open .*there is a key/);
  });

  it('a reward service accepts the key of POST /score in a file that only its owner can read', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-key-'));
    const path = join(folder, 'key');
    try {
      await writeFile(path, 'one-two-three-four\n', { mode: 0o600 });
      const config = load(['--run', 'a', '--http-host', '0.0.0.0', '--http-key-file', path]);
      assert.equal(await scoreKey(config), 'one-two-three-four');

      await chmod(path, 0o644);
      await assert.rejects(scoreKey(config), /--http-key-file .*every user.*chmod 600/);
      await chmod(path, 0o600);
      await writeFile(path, 'a secret of others');
      await assert.rejects(scoreKey(config), (error: Error) => {
        assert.match(error.message, /holds no key: expected one line of at least 16 characters/);
        assert(!error.message.includes('secret of others'));
        return true;
      });
      await assert.rejects(scoreKey({ ...config, httpKeyFile: `${path}.none` }), /cannot read/);
      const both = ['--http-key', 'one-two-three-four', '--http-key-file', path];
      assert.throws(() => load(['--run', 'a', ...both]), /exclude each other/);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('the settings of a reward service are all checked at once', () => {
    assert.throws(
      () => load(['--http-port', '70000', '--speed', '9']),
      (error: unknown) => {
        assert(error instanceof Error);
        assert.match(error.message, /--run \(or REWARD_SERVICE_RUN\) is missing/);
        assert.match(error.message, /--http-port \(or REWARD_SERVICE_HTTP_PORT\) is "70000"/);
        assert.match(error.message, /--speed is not a flag/);
        return true;
      },
    );
  });
});
