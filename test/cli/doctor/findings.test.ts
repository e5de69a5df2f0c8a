import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { contextFinding } from '../../../cli/doctor/backend.js';
import {
  clockFinding,
  skewOf,
  machineFindings,
  readMachine,
  type Machine,
} from '../../../cli/doctor/machine.js';
import { type Finding, findingText, verdictText } from '../../../cli/doctor/finding.js';
import { weightFindings } from '../../../cli/doctor/model.js';
import { serverFindings } from '../../../cli/doctor/nats.js';
import { portFindings, runsFolderFindings } from '../../../cli/doctor/places.js';
import type { ServerFacts } from '../../../shared/broker/inspect.js';

const levels = (findings: readonly Finding[]) => findings.map(({ level }) => level);

describe("the doctor's findings about the weights of a model", () => {
  it('the doctor warns of fp16 weights on Node.js 24, whose ONNX Runtime refuses them', () => {
    const [half] = weightFindings(['BF16', 'F16'], '24.1.0');
    assert.match(
      findingText(half!),
      /^warning +weights: .*Node\.js 24\.1\.0\n .*20 or 22, .*bfloat16/,
    );
    assert.deepEqual(weightFindings(['BF16', 'F16'], '22.20.0'), []);
    assert.deepEqual(weightFindings(['BF16', 'F32'], '24.1.0'), []);
  });
});

describe("the doctor's findings about a machine", () => {
  const good: Machine = {
    nodeVersion: '22.1.0',
    platform: 'linux',
    architecture: 'x64',
    cores: 4,
    cpuFlags: new Set(['avx', 'avx2']),
    memoryBytes: 8 * 2 ** 30,
    openFiles: 4_096,
  };
  const of = (over: Partial<Machine>) => machineFindings({ ...good, ...over });

  it('the doctor finds no fault in a good machine', () => {
    assert.deepEqual(levels(machineFindings(good)), ['ok', 'ok', 'ok', 'ok']);
  });

  it('the doctor refuses an old Node.js', () => {
    const [node] = of({ nodeVersion: '20.10.9' });
    assert.equal(node?.level, 'error');
    assert.match(node.remedy ?? '', /install Node\.js 20\.11 or newer/);
    assert.deepEqual(levels(of({ nodeVersion: '20.11.0' }))[0], 'ok');
    assert.deepEqual(levels(of({ nodeVersion: '18.20.0' }))[0], 'error');
  });

  it('the doctor warns of few cores, no AVX2, little memory and few open files', () => {
    const cpu = (over: Partial<Machine>) => of(over)[1];
    assert.match(cpu({ cpuFlags: new Set(['sse2']) })?.found ?? '', /without AVX2/);
    assert.equal(cpu({ cpuFlags: new Set() })?.level, 'warning');
    assert.equal(cpu({ cores: 1.5 })?.level, 'warning');
    assert.deepEqual(levels(of({ memoryBytes: 2 ** 30, openFiles: 256 })), [
      ...['ok', 'ok'],
      ...['warning', 'warning'],
    ]);
  });

  it('the doctor does not require AVX2 where the processor cannot have it or its flags are unknown', () => {
    assert.equal(of({ architecture: 'arm64', cpuFlags: new Set(['asimd']) })[1]?.level, 'ok');
    assert.equal(of({ platform: 'darwin', cpuFlags: undefined })[1]?.level, 'ok');
  });

  it('the doctor reads the facts of the machine that it runs on', async () => {
    const machine = await readMachine();
    assert.equal(machine.nodeVersion, process.versions.node);
    assert(machine.cores > 0 && machine.memoryBytes > 0);
  });
});

describe("the doctor's findings about a NATS server", () => {
  const good: ServerFacts = {
    version: '2.10.27',
    isCluster: false,
    maxPayload: 2 ** 20,
    storage: { used: 0, limit: undefined },
    streams: { used: 0, limit: undefined },
  };
  const of = (over: Partial<ServerFacts>) => serverFindings({ ...good, ...over }, 'nats://n:1');

  it('the doctor accepts nats-server 2.9 and newer', () => {
    assert.deepEqual(levels(of({})), ['ok', 'ok']);
    assert.equal(of({ version: '2.9.10' })[0]?.level, 'ok');
    assert.equal(of({ version: '2.8.4' })[0]?.level, 'error');
  });

  it('the doctor reports limits of a server that a run would reach', () => {
    const full = of({ storage: { used: 3 * 2 ** 30, limit: 3.5 * 2 ** 30 } });
    assert.deepEqual(levels(full), ['ok', 'warning']);
    assert.match(full[1]?.found ?? '', /3072 MiB of 3584 MiB/);
    assert.equal(of({ streams: { used: 15, limit: 25 } })[1]?.level, 'error');
    assert.equal(of({ streams: { used: 15, limit: 26 } })[1]?.level, 'ok');
    assert.equal(of({ maxPayload: 65_536 })[0]?.level, 'warning');
  });
});

describe("the doctor's findings about clocks", () => {
  const askedAt = 1_000_000_300;
  const answeredAt = askedAt + 200;

  it('the doctor takes into account that a Date header has whole seconds', () => {
    const now = 1_000_000_000;
    assert.equal(skewOf({ date: now, askedAt, answeredAt }), 0);
    assert.equal(skewOf({ date: now + 5_000, askedAt, answeredAt }), 4_500);
    assert.equal(skewOf({ date: now - 5_000, askedAt, answeredAt }), -4_301);
  });

  it('the doctor does not count the time that a request takes as a clock difference', () => {
    const slow = { date: 1_000_003_000, askedAt, answeredAt: askedAt + 10_000 };
    assert.equal(clockFinding('NATS', slow).level, 'ok');
  });

  it('the doctor tolerates a clock difference of two seconds', () => {
    const ahead = (ms: number) =>
      clockFinding('NATS', { date: answeredAt + ms, askedAt, answeredAt });
    assert.equal(ahead(2_000).level, 'ok');
    assert.equal(ahead(2_001).level, 'error');
    assert.match(ahead(60_000).found, /that of NATS is 60\.0 s ahead/);
  });
});

describe("the doctor's findings about contexts", () => {
  it('the doctor warns if the backend accepts shorter contexts than the model', () => {
    assert.equal(contextFinding({ maxContextLength: 64 }, { maxPositions: 512 })?.level, 'warning');
    assert.equal(contextFinding({ maxContextLength: 512 }, { maxPositions: 512 })?.level, 'ok');
    assert.equal(contextFinding({}, { maxPositions: 512 }), undefined);
    assert.equal(contextFinding({ maxContextLength: 64 }, undefined), undefined);
  });
});

describe("the doctor's findings about the folder of the runs", () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-doctor-test-'));
  });
  after(() => rm(folder, { recursive: true }));

  it('the doctor leaves no file behind, even if the folder does not exist yet', async () => {
    const [existing] = await runsFolderFindings(folder);
    assert.match(existing?.found ?? '', /can be written; .* GiB are free/);
    const [missing] = await runsFolderFindings(join(folder, 'deep', 'runs'));
    assert.match(missing?.found ?? '', /can be made/);
    assert.deepEqual(await readdir(folder), []);
  });

  it('the doctor reports a folder that cannot be written', async (t) => {
    if (process.getuid?.() === 0) {
      t.skip('root may write everywhere');
      return;
    }
    await chmod(folder, 0o500);
    const [finding] = await runsFolderFindings(folder);
    await chmod(folder, 0o700);
    assert.equal(finding?.level, 'error');
    assert.match(finding.remedy ?? '', /--runs-dir/);
  });

  it('the doctor reports a path that is not a folder', async () => {
    const [finding] = await runsFolderFindings('/proc/self/status');
    assert.equal(finding?.level, 'error');
  });
});

describe("the doctor's findings about ports", () => {
  it('the doctor warns of an occupied port', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const address = holder.address();
    assert(typeof address === 'object' && address !== null);
    const [finding] = await portFindings([{ port: address.port, service: 'offbeat something' }]);
    holder.close();
    assert.equal(finding?.level, 'warning');
    assert.match(finding.found, new RegExp(`${address.port} \\(of offbeat something\\) is taken`));
    assert.equal((await portFindings([]))[0]?.level, 'ok');
  });
});

describe('the printed findings', () => {
  const bad: Finding = { check: 'node', level: 'error', found: 'Node.js 8.0.0', remedy: 'update' };

  it('a printed finding has its remedy on the lines below it', () => {
    assert.equal(findingText(bad), 'ERROR    node: Node.js 8.0.0\n         → update\n');
  });

  it('the printed findings end with the number of faults and warnings', () => {
    assert.equal(verdictText([{ ...bad, level: 'ok' }]), '\ntraining can begin\n');
    assert.match(verdictText([bad, bad, { ...bad, level: 'warning' }]), /2 errors, 1 warning: /);
    assert.match(
      verdictText([{ ...bad, level: 'warning' }]),
      /^\ntraining can begin, 1 warning\n$/,
    );
  });
});
