import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ActorConfig, defaultName } from '../../actor/config.js';
import { requireAdoption } from '../../actor/join-run.js';
import { addressesIn } from '../../shared/service/config-fields.js';
import { loadConfig } from '../../shared/service/config.js';

const load = (...argv: string[]) => loadConfig(ActorConfig, 'actor', argv, { ACTOR_RUN: 'r' });

describe('the configuration of an actor', () => {
  it('an actor can be configured by the name of the run alone', () => {
    const config = load();
    assert.equal(config.sampler, 'onnx');
    assert.equal(config.inFlightUpdates, true);
    assert.match(config.name, /^[A-Za-z0-9_-]+$/);
  });

  it('an actor joins a run whose bound holds for tokens only if its answers adopt versions', () => {
    const join = (windowPolicy: 'drop' | 'tokens', ...argv: string[]) => {
      requireAdoption({ run: 'r', windowPolicy }, load(...argv));
    };
    const backend = ['--sampler=tinker', '--backend-url=http://127.0.0.1:1', '--api-key=tml-1'];
    join('tokens');
    join('tokens', ...backend, '--segment-tokens=64');
    join('drop', '--no-in-flight-updates');
    join('drop', ...backend);
    assert.throws(() => {
      join('tokens', '--no-in-flight-updates');
    }, /run r has --window-policy tokens, .*; remove --no-in-flight-updates/);
    assert.throws(() => {
      join('tokens', ...backend);
    }, /with --sampler tinker give --segment-tokens, such as 256/);
  });

  it('a flag of the actor switches in-flight updates off', () => {
    assert.equal(load('--no-in-flight-updates').inFlightUpdates, false);
  });

  it('an actor needs an address and a key to sample on the backend', () => {
    assert.throws(() => load('--sampler', 'tinker'), /--backend-url[^]*--api-key/);
  });

  it('an actor accepts an address and a key for the backend', () => {
    const backend = ['--backend-url', 'http://127.0.0.1:10610', '--api-key', 'tml-1'];
    assert.equal(
      load('--sampler', 'tinker', ...backend, '--segment-tokens', '16').concurrency,
      'auto',
    );
  });

  it('an actor needs the address of its engine, and takes several', () => {
    assert.throws(() => load('--sampler', 'vllm'), /--engine-url.*needs its address/);
    const several = 'http://127.0.0.1:8000,https://engine/v/';
    const { sampler, engineUrl } = load('--sampler', 'sglang', '--engine-url', several);
    assert.deepEqual(
      [sampler, addressesIn(engineUrl!)],
      ['sglang', ['http://127.0.0.1:8000', 'https://engine/v']],
    );
    const wrong = ['--sampler', 'vllm', '--engine-url', 'http://127.0.0.1:8000,engine:8000'];
    assert.throws(() => load(...wrong), /--engine-url.*separated by commas/);
  });

  it('an actor refuses the settings of an engine that its sampler does not use', () => {
    const flags = ['--engine-url', 'http://127.0.0.1:1', '--engine-max-loras', '8'];
    assert.throws(
      () => load(...flags, '--adapter-dir', '/tmp'),
      /--engine-url[^]*--engine-max-loras[^]*--adapter-dir.*remove one of the two/,
    );
  });

  it('an actor refuses segments for a sampler that has none', () => {
    assert.throws(
      () => load('--segment-tokens', '16'),
      /--segment-tokens.*is "?16"?.*--sampler onnx adopts between two tokens/,
    );
  });

  it('an actor that samples on a server refuses threads of its own, and segments where no answer adopts a version', () => {
    const tinker = ['--sampler=tinker', '--backend-url=http://127.0.0.1:1', '--api-key=tml-1'];
    assert.throws(() => load(...tinker, '--threads=2'), /--threads .*"2": .* samples on a server/);
    const segments = [...tinker, '--no-in-flight-updates', '--segment-tokens=16'];
    assert.throws(() => load(...segments), /--segment-tokens .*an answer is one call/);
    assert.equal(load(...segments, '--rollout-seconds=9').segmentTokens, 16);
  });

  it('the configuration of an actor refuses a way of adoption that its sampler does not have', () => {
    const backend = ['--backend-url', 'http://127.0.0.1:10610', '--api-key', 'tml-1'];
    const tinker = ['--sampler', 'tinker', ...backend];
    assert.throws(() => load(...tinker, '--on-adoption', 'keep'), /--on-adoption.*use reprefill/);
    assert.equal(load(...tinker, '--on-adoption', 'reprefill').onAdoption, 'reprefill');
    const without = ['--no-in-flight-updates', '--on-adoption', 'keep'];
    assert.throws(() => load(...without), /--on-adoption.*no rollout adopts a version/);
  });

  it('an actor refuses a name that is not a valid subject token', () => {
    assert.throws(() => load('--name', 'a.b'), /--name .*"a\.b"/);
  });

  it('an actor derives a valid name from a host name with dots', () => {
    assert.equal(defaultName('node-1.cluster.local', 42), 'node-1-cluster-local-42');
  });
});
