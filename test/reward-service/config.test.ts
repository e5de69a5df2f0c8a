import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadConfig } from '../../shared/config.js';
import { RewardServiceConfig } from '../../reward-service/config.js';

const load = (argv: string[], env: Record<string, string> = {}) =>
  loadConfig(RewardServiceConfig, 'reward-service', argv, env);

describe("the reward service's settings", () => {
  it('need only the name of the run', () => {
    const config = load(['--run', 'a']);
    assert.equal(config.run, 'a');
    assert.equal(config.natsUrl, 'nats://127.0.0.1:4222');
    assert.equal(config.httpHost, '127.0.0.1');
    assert.match(config.name, /./);
  });

  it('come from the environment alone, as in a container', () => {
    const config = load([], {
      REWARD_SERVICE_RUN: 'a',
      REWARD_SERVICE_NAME: 'reward-3',
      REWARD_SERVICE_NATS_URL: 'nats://nats:4222',
      REWARD_SERVICE_HTTP_HOST: '0.0.0.0',
      REWARD_SERVICE_HTTP_PORT: '8080',
      REWARD_SERVICE_HEALTH_PORT: '8081',
      REWARD_SERVICE_MODEL_DIR: '/models/qwen3',
      REWARD_SERVICE_DATASET_PATH: '/data/problems.jsonl',
    });
    assert.equal(config.name, 'reward-3');
    assert.equal(config.httpPort, 8080);
    assert.equal(config.modelDir, '/models/qwen3');
    assert.equal(config.datasetPath, '/data/problems.jsonl');
  });

  it('are all checked at once', () => {
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
