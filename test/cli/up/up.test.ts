import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { apiKey, startOn } from '../../local-backend/running-backend.js';
import { HubServer } from '../../support/hub-server.js';
import { NatsServer } from '../../support/nats-server.js';
import { tinyModel } from '../../support/tiny-model.js';
import { UpProcess } from '../../support/up-process.js';

describe('offbeat up, with a model that cannot be run', { timeout: 60_000 }, () => {
  it('offbeat up names the key of config.json before it starts or writes anything', async () => {
    await using model = await tinyModel();
    const config = join(model.path, 'config.json');
    const json = JSON.parse(await readFile(config, 'utf8')) as Record<string, unknown>;
    await writeFile(config, JSON.stringify({ ...json, model_type: 'mamba' }));

    await using up = await UpProcess.start([`--model-dir=${model.path}`]);
    assert.equal(await up.ended(), 2);
    assert.match(up.err, /config\.json describes .*:\n {2}- model_type is "mamba": only qwen3/);
    assert.deepEqual(await readdir(up.folder), []);
  });

  it('offbeat up names the missing weights', async () => {
    await using model = await tinyModel();
    await writeFile(join(model.path, 'model.safetensors'), '');
    await using up = await UpProcess.start([`--model-dir=${model.path}`]);
    assert.equal(await up.ended(), 2);
    assert.match(up.err, /model\.safetensors is not a valid safetensors file: it has 0 bytes/);
    assert.deepEqual(await readdir(up.folder), []);
  });
});

describe('offbeat up, with an unusable environment', { timeout: 240_000 }, () => {
  /** What a start says that must fail with exit code 2 and write nothing. */
  async function refusal(
    flags: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<string> {
    await using up = await UpProcess.start(flags, undefined, env);
    assert.equal(await up.ended(), 2, up.out + up.err);
    assert.deepEqual(await readdir(up.folder), []);
    return up.err;
  }

  it('offbeat up writes nothing if the port of the dashboard is occupied', async () => {
    await using holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const { port } = holder.address() as AddressInfo;
    assert.match(
      await refusal([`--dashboard-port=${port}`]),
      new RegExp(
        `^cannot serve the dashboard on 127.0.0.1:${port} .*choose another --dashboard-port`,
      ),
    );
  });

  it('offbeat up starts no service with a level of the log that does not exist', async () => {
    assert.match(await refusal([], { LOG_LEVEL: 'warning' }), /^LOG_LEVEL is "warning": expected/);
  });

  it('offbeat up writes nothing if the dataset does not exist, and reports it once', async () => {
    assert.match(
      await refusal(['--dataset=none.jsonl']),
      /^cannot read the problems in none\.jsonl \(ENOENT/,
    );
    await using hub = await HubServer.start({});
    const err = await refusal(['--dataset=nobody/nothing'], { HF_ENDPOINT: hub.url });
    assert.match(err, /^cannot fetch the dataset nobody\/nothing: .* answered 404/);
    assert.equal(err.split('cannot fetch').length, 2);
  });

  it('offbeat up writes nothing if NATS refuses its key, lacks JetStream, or a key is missing', async () => {
    const lone = "authorization { user: 'u', password: 'p' }";
    await using locked = await NatsServer.start({ configuration: lone });
    assert.match(
      await refusal([`--nats-url=${locked.url}`]),
      /^NATS at .* refused the credentials/m,
    );
    await using plain = await NatsServer.start({ jetStream: false });
    assert.match(await refusal([`--nats-url=${plain.url}`]), /^NATS at .* runs without JetStream/m);
    const err = await refusal([`--nats-url=${plain.url}`, '--nats-keys=/nowhere']);
    assert.match(err, /--nats-keys \/nowhere has no \S+\.nk; make the keys .*nats-config --run/);
  });

  it('offbeat up writes nothing if the backend does not answer or serves another model', async () => {
    await using model = await tinyModel();
    const flags = [`--api-key=${apiKey}`, `--model-dir=${model.path}`, '--model-name=another'];
    const away = await refusal(['--backend-url=http://127.0.0.1:9', ...flags]);
    assert.match(away, /127\.0\.0\.1:9/);
    await using backend = await startOn(model.path);
    assert.match(
      await refusal([`--backend-url=${backend.url}`, ...flags]),
      /^the backend at .* serves test\/tiny, not --model-name another; choose one with --model-name/,
    );
  });

  it('offbeat up writes nothing if a service would refuse its part of the environment', async () => {
    const wrong = { ACTOR_THREADS: 'many', LEARNER_LOSS: 'mse', OFFBEAT_ENGINE_URL: 'http://x' };
    const [heading, ...problems] = (await refusal(['--segment-tokens=3'], wrong)).split('\n');
    assert.equal(heading, 'offbeat cannot start:');
    assert.match(problems[0]!, /^ {2}- LEARNER_LOSS is "mse": expected one of /);
    assert.match(problems[1]!, /^ {2}- ACTOR_THREADS is "many": expected a number$/);
    const others = await refusal(['--segment-tokens=3'], { ...wrong, ACTOR_THREADS: '' });
    assert.match(others, /^ {2}- --engine-url \(or OFFBEAT_ENGINE_URL\) is "http:\/\/x": only /m);
    assert.match(others, /^ {2}- --segment-tokens \(or OFFBEAT_SEGMENT_TOKENS\) is "3": --sam/m);
    assert.match(others, /^ {2}- LEARNER_LOSS is "mse"/m);
  });

  it('offbeat up writes nothing if the folder of the runs cannot be created', async () => {
    assert.match(
      await refusal(['--runs-dir=/dev/null/runs']),
      /^no run can be kept in \/dev\/null\/runs/,
    );
    if (process.platform !== 'linux') return;
    assert.match(
      await refusal(['--runs-dir=/proc/offbeat']),
      /^no run can be kept in \/proc\/offb/m,
    );
  });
});
