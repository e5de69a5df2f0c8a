import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFile, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { backendFindings, type BackendQuestion } from '../../cli/doctor/backend.js';
import { adapterFinding } from '../../cli/doctor/backend-offer.js';
import { clockFindings } from '../../cli/doctor/machine.js';
import { type Finding, remedies, type Trouble } from '../../cli/doctor/finding.js';
import { modelFindings } from '../../cli/doctor/model.js';
import { natsFindings, type NatsQuestion } from '../../cli/doctor/nats.js';
import { freePort } from '../../cli/processes/free-port.js';
import { identitiesOf } from '../../cli/nats-server/keys.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { parameterShapes } from '../../shared/model/parameters.js';
import { encodeHeader } from '../../shared/model/safetensors.js';
import { losses } from '../../shared/rl/losses.js';
import { GuardedServer } from '../support/guarded-server.js';
import { silent } from '../support/log.js';
import { NatsServer } from '../support/nats-server.js';
import { runOffbeat } from '../support/offbeat.js';
import { RecordingProxy, type Lacking } from '../support/recording-proxy.js';
import { ServiceProcess } from '../support/service-process.js';
import { tinyModel } from '../support/tiny-model.js';

const signal = new AbortController().signal;

/** The check, the level and the remedy of the only finding that is not `ok`. */
function onlyTrouble(findings: readonly Finding[]): [check: string, level: string, Trouble] {
  const bad = findings.filter(({ level }) => level !== 'ok');
  assert.equal(bad.length, 1, JSON.stringify(findings));
  const [{ check, level, remedy }] = bad as [Finding];
  const trouble = Object.entries(remedies).find(([, text]) => text === remedy)?.[0];
  return [check, level, trouble as Trouble];
}

async function httpServer(listener: RequestListener) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert(typeof address === 'object' && address !== null);
  return {
    url: `http://127.0.0.1:${address.port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

describe('the doctor, at a NATS server with keys', { timeout: 120_000 }, () => {
  let server: GuardedServer;
  let question: NatsQuestion;

  before(async () => {
    server = await GuardedServer.start(identitiesOf(['actor-0']));
    const { url: natsUrl, keyFolder: natsKeys } = server.nats;
    question = { natsUrl, natsKeys, run: 'guarded', log: silent, signal };
  });
  after(() => server[Symbol.asyncDispose]());

  it('the doctor confirms that each key has the rights of its role', async () => {
    const findings = await natsFindings(question);
    assert(
      findings.every(({ level }) => level === 'ok'),
      JSON.stringify(findings),
    );
    const keys = findings.filter(({ check }) => check === 'nats-permissions');
    assert.equal(keys.length, identitiesOf(['actor-0']).length);
    assert.deepEqual(await server.refusals(), []);
  });

  it('the doctor stores nothing', async () => {
    await using broker = await server.connect({ role: 'operator' });
    assert.equal(await broker.isThere(), false);
  });

  it('the doctor detects keys of another run', async () => {
    const findings = await natsFindings({ ...question, run: 'another' });
    const refused = findings.filter(({ check }) => check === 'nats-permissions');
    assert(
      refused.every(({ level, remedy }) => level === 'error' && remedy === remedies.keyMayNot),
    );
    assert.match(
      refused[0]?.found ?? '',
      /^actor\.actor-0 may not use offbeat\.another\.\S+ and \d+/,
    );
  });

  it('the doctor detects keys that the server does not know', async () => {
    await using other = await GuardedServer.start([{ role: 'observer' }]);
    const findings = await natsFindings({ ...question, natsKeys: other.nats.keyFolder });
    assert.deepEqual(onlyTrouble(findings), ['nats', 'error', 'natsRefuses']);
    const without = await natsFindings({ ...question, natsKeys: undefined });
    assert.deepEqual(onlyTrouble(without), ['nats', 'error', 'natsRefuses']);
  });

  it('the doctor takes a folder of keys that does not exist for a mistake of the user', async () => {
    const natsKeys = join(server.folder, 'mistyped');
    const findings = await natsFindings({ ...question, natsKeys });
    assert.deepEqual(onlyTrouble(findings), ['nats-permissions', 'error', 'noKey']);
    assert.match(findings[0]!.found, /mistyped cannot be read \(ENOENT/);
  });

  it('the doctor cannot judge permissions without a run', async () => {
    const findings = await natsFindings({ ...question, run: undefined });
    assert.deepEqual(onlyTrouble(findings), ['nats-permissions', 'skipped', 'permissionsUnknown']);
  });
});

describe('the doctor, at an unusable NATS server', { timeout: 120_000 }, () => {
  const question = { natsKeys: undefined, run: 'test', log: silent, signal };

  it('the doctor detects a server without JetStream', async () => {
    await using server = await NatsServer.start({ jetStream: false });
    const findings = await natsFindings({ ...question, natsUrl: server.url });
    assert.deepEqual(onlyTrouble(findings), ['jetstream', 'error', 'noJetStream']);
  });

  it('the doctor detects an account with too little storage', async () => {
    const account = 'jetstream: { max_mem: 10M, max_file: 100M, max_streams: 5 }';
    const configuration = `accounts { A { ${account}, users: [{ user: a, password: b }] } }`;
    await using server = await NatsServer.start({ configuration });
    const natsUrl = server.url.replace('nats://', 'nats://a:b@');
    const findings = await natsFindings({ ...question, natsUrl, run: undefined });
    const jetStream = findings.find(({ check }) => check === 'jetstream');
    assert.equal(jetStream?.remedy, remedies.littleStorage);
    assert.match(jetStream.found, /0 MiB of 95 MiB in 0 streams/);
  });

  it('the doctor detects an address where nothing answers', async () => {
    const natsUrl = `nats://127.0.0.1:${await freePort()}`;
    const findings = await natsFindings({ ...question, natsUrl });
    assert.deepEqual(onlyTrouble(findings), ['nats', 'error', 'natsUnreachable']);
  });
});

describe('the doctor, at a backend', { timeout: 180_000 }, () => {
  let model: ModelDirectory & AsyncDisposable;
  let backend: ServiceProcess;
  let question: BackendQuestion;

  before(async () => {
    model = await tinyModel();
    const apiKey = 'tml-doctor-key';
    backend = new ServiceProcess('local-backend', [
      ...['--port', '0', '--api-key', apiKey, '--threads', '1'],
      // Named by its directory, so that its tokenizer can be found.
      ...['--model-dir', model.path, '--model-name', model.path],
      ...['--checkpoint-dir', join(model.path, 'checkpoints')],
    ]);
    const { url } = await backend.says(({ msg }) => msg === 'listening');
    const backendUrl = String(url);
    const place = { backendUrl, apiKey, modelDir: model.path, modelName: undefined };
    question = { ...place, loraRank: 4, trial: true, log: silent, signal };
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await model[Symbol.asyncDispose]();
  });
  const trouble = async (over: Partial<BackendQuestion>) =>
    onlyTrouble(await backendFindings({ ...question, ...over }));

  it('the doctor accepts a correct model, rank, context and tokenizer', async () => {
    const findings = await backendFindings(question);
    assert.deepEqual(
      findings.map(({ check, level }) => [check, level]),
      [
        ...['backend', 'backend-model', 'context', 'calls', 'prompt-logprobs', 'lora-rank'],
        ...['backend-tokenizer', 'losses', 'adapters', 'adapters-at-once'],
      ].map((check) => [check, 'ok']),
    );
    const found = Object.fromEntries(findings.map((each) => [each.check, each.found]));
    assert.match(found['calls']!, /load_weights, .*retrieve_futures, [^;]*$/);
    assert.equal(found['prompt-logprobs'], 'given');
    assert.equal(found['losses'], Object.keys(losses).join(', '));
    assert.equal(found['adapters'], 'can be downloaded (archive)');
  });

  it('the doctor says what a lesser backend lacks, and what takes its place', async () => {
    const ask = async (lacking: Lacking) => {
      await using proxy = await RecordingProxy.before(question.backendUrl, undefined, lacking);
      return await backendFindings({ ...question, backendUrl: proxy.url });
    };
    const external = await ask({
      losses: ['cispo'],
      calls: ['archive', 'retrieve_futures', 'get_info'],
    });
    const found = Object.fromEntries(external.map((each) => [each.check, each]));
    assert.match(found['calls']!.found, /; without get_info, retrieve_futures$/);
    assert.match(found['losses']!.found, /cispo by importance_sampling/);
    assert.equal(found['adapters']!.found, 'can be downloaded (external weights)');
    assert.equal(found['lora-rank']!.level, 'ok');

    const none = await ask({ calls: ['archive', 'save_weights_external'] });
    assert.deepEqual(onlyTrouble(none), ['adapters', 'warning', 'noAdapters']);
    const lossless = await ask({ losses: ['ppo', 'importance_sampling', 'cross_entropy'] });
    assert.deepEqual(onlyTrouble(lossless), ['losses', 'error', 'noLoss']);
  });

  it('actors need a way to get adapters or a backend that samples', () => {
    const first = { kind: 'none', reasons: ['no archives', 'no files'] } as const;
    const cases = [
      ['no', 'neitherWay'],
      ['unknown', 'noAdapters'],
      ['yes', 'noAdapters'],
    ] as const;
    for (const [samples, trouble] of cases) {
      const { found, remedy } = adapterFinding('adapters', first, samples);
      assert.equal(found, 'cannot be downloaded: no archives; no files');
      assert.equal(remedy, remedies[trouble]);
    }
  });

  it('the doctor leaves no adapter and no checkpoint', async () => {
    const answered = (call: string) =>
      backend.metric(`local_backend_requests_total{route="POST /api/v1/${call}",status="202"}`);
    const [made, given] = await Promise.all(['create_model', 'unload_model'].map(answered));
    assert.equal(made, given);
    assert(made! >= 2);
    const kept = await readdir(join(model.path, 'checkpoints'), { recursive: true });
    assert.deepEqual(
      kept.filter((path) => path.includes('offbeat-doctor')),
      [],
    );
  });

  it('the doctor detects a wrong backend key', async () => {
    assert.deepEqual(await trouble({ apiKey: 'tml-wrong' }), [
      'backend',
      'error',
      'backendRefuses',
    ]);
  });

  it('the doctor detects a model that is not served and a rank that is not accepted', async () => {
    assert.deepEqual(await trouble({ modelName: 'gpt' }), [
      ...(['backend-model', 'error', 'modelNotServed'] as const),
    ]);
    assert.deepEqual(await trouble({ loraRank: 1_000_000 }), ['lora-rank', 'error', 'rankRefused']);
    assert.deepEqual(await trouble({ trial: false }), ['lora-rank', 'skipped', 'rankNotTried']);
  });

  it('the doctor detects a different tokenizer', async () => {
    await using other = await tinyModel(1);
    const path = join(other.path, 'tokenizer.json');
    await writeFile(path, `${await readFile(path, 'utf8')}\n`);
    assert.deepEqual(await trouble({ modelDir: other.path }), [
      ...(['backend-tokenizer', 'error', 'tokenizerDiffers'] as const),
    ]);
  });

  it('the doctor detects a missing backend and another kind of server', async () => {
    const backendUrl = `http://127.0.0.1:${await freePort()}`;
    assert.deepEqual(await trouble({ backendUrl }), ['backend', 'error', 'backendUnreachable']);
    await using shop = await httpServer((_, response) => response.end('<html>a shop</html>'));
    assert.deepEqual(await trouble({ backendUrl: shop.url }), [
      'backend',
      'error',
      'noTinkerServer',
    ]);
  });
});

describe('the doctor, of clocks and models', { timeout: 120_000 }, () => {
  it('the doctor detects a wrong server clock', async () => {
    await using server = await httpServer((_, response) => {
      response.setHeader('date', new Date(Date.now() + 90_000).toUTCString());
      response.statusCode = 404;
      response.end();
    });
    const findings = await clockFindings([{ name: 'NATS', url: server.url }], signal);
    assert.deepEqual(onlyTrouble(findings), ['clock', 'error', 'clockSkewed']);
    assert.match(findings[0]?.found ?? '', /that of NATS is (8\d|90)\.\d s ahead/);
  });

  it('the doctor accepts a right clock and names servers whose clock it cannot read', async () => {
    await using server = await httpServer((_, response) => response.end());
    const right = { name: 'NATS', url: server.url };
    assert.equal((await clockFindings([right], signal))[0]?.level, 'ok');
    const silentOne = { name: 'NATS', url: `http://127.0.0.1:${await freePort()}` };
    assert.deepEqual(onlyTrouble(await clockFindings([silentOne], signal)), [
      ...(['clock', 'skipped', 'clockUnknown'] as const),
    ]);
  });

  it('the doctor detects faults of a model directory', async () => {
    await using model = await tinyModel();
    assert((await modelFindings(model.path)).every(({ level }) => level === 'ok'));
    const weights = join(model.path, 'model.safetensors');
    await copyFile(weights, `${weights}.whole`);
    await truncate(weights, 1_000);
    assert.deepEqual(onlyTrouble(await modelFindings(model.path)), [
      'model',
      'error',
      'modelBroken',
    ]);
    await copyFile(`${weights}.whole`, weights);
    await writeFile(join(model.path, 'tokenizer.json'), '{}');
    const findings = await modelFindings(model.path);
    assert.deepEqual(onlyTrouble(findings), ['tokenizer', 'error', 'modelBroken']);
    await rm(join(model.path, 'tokenizer.json'));
    const [absent] = await modelFindings(model.path);
    assert.match(absent?.found ?? '', /cannot read .*tokenizer\.json/);
  });

  it('the doctor warns of a model in fp16 on a Node.js that cannot run it', async () => {
    await using model = await tinyModel();
    const shapes = [...parameterShapes(model.config)];
    const head = encodeHeader(shapes.map(([name, dims]) => [name, { dtype: 'F16', dims }]));
    const values = shapes.reduce((sum, [, dims]) => sum + dims.reduce((a, b) => a * b, 1), 0);
    const file = Buffer.concat([head, new Uint8Array(2 * values)]);
    await writeFile(join(model.path, 'model.safetensors'), file);
    assert.deepEqual(onlyTrouble(await modelFindings(model.path, '24.1.0')), [
      ...(['weights', 'warning', 'halfWeights'] as const),
    ]);
    assert((await modelFindings(model.path, '22.20.0')).every(({ level }) => level === 'ok'));
  });
});

describe('offbeat doctor', { timeout: 180_000 }, () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-doctor-test-'));
  });
  after(() => rm(folder, { recursive: true }));

  it('offbeat doctor starts a nats-server as npm start would and ends with 0', async () => {
    const { code, out } = await runOffbeat(['doctor'], folder);
    assert.equal(code, 0, out);
    assert.match(out, /^ok {7}nats: nats-server \d/m);
    assert.match(out, /^ok {7}nats-permissions: actor\.actor-0 may do what it needs$/m);
    assert.match(out, /training can begin/);
  });

  it('offbeat doctor ends with 1 if OFFBEAT_NATS_SERVER names no nats-server, since npm start would fail', async () => {
    const env = { OFFBEAT_NATS_SERVER: join(folder, 'none') };
    const { code, out } = await runOffbeat(['doctor'], folder, env);
    assert.equal(code, 1);
    assert.match(out, /^ERROR {4}nats: OFFBEAT_NATS_SERVER cannot be used: .*none is not/m);
  });

  it('offbeat doctor ends with 1 if a check fails and prints all findings as JSON', async () => {
    const natsUrl = `nats://127.0.0.1:${await freePort()}`;
    const { code, out } = await runOffbeat(['doctor', '--json', `--nats-url=${natsUrl}`], folder);
    assert.equal(code, 1);
    const findings = JSON.parse(out) as Finding[];
    const bad = findings.find(({ level }) => level === 'error');
    assert.equal(bad?.remedy, remedies.natsUnreachable);
    assert.deepEqual(
      ['node', 'model', 'clock'].filter((check) => findings.some((each) => each.check === check)),
      ['node', 'model', 'clock'],
    );
  });
});
