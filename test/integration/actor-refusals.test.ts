import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { prepareGround, type Ground } from '../support/actor-run.js';
import { ServiceProcess } from '../support/service-process.js';

describe('an actor that cannot continue', { timeout: 120_000 }, () => {
  let ground: Ground;

  before(async () => {
    ground = await prepareGround();
  });
  after(() => ground[Symbol.asyncDispose]());

  it('an actor refuses to start with a model other than that of the run', async () => {
    await using run = await ground.startRun({ model: { name: 'tiny', digest: 'f'.repeat(64) } });
    await using actor = run.actor('one');
    assert.equal(await actor.exitCode(), 2);
    assert.match(
      actor.errors,
      new RegExp(`has the digest ${ground.model.digest}, .* f{64}; .*--model-dir`),
    );
  });

  it('an actor refuses to start with a dataset other than that of the run', async () => {
    await using run = await ground.startRun({ datasetDigest: 'e'.repeat(64) });
    await using actor = run.actor('one');
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, new RegExp(`have the digest ${ground.dataset.digest}, .* e{64}; `));
  });

  it('an actor refuses a policy whose weights it cannot download', async () => {
    await using run = await ground.startRun();
    const samplerPath = 'tinker://run/sampler_weights/v0';
    await run.broker.policy.publish({ version: 0, samplerPath, smallestUsefulVersion: 0 });
    await using actor = run.actor('one');
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, /version 0 comes without its adapter.*--sampler tinker/);
  });

  it('an actor whose decoder dies ends with a clear message and loses no ticket', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await run.issue({ issuedAtVersion: 1 });
    const crash = `import { isMainThread } from 'node:worker_threads';
      if (!isMainThread) setTimeout(() => process.exit(3), 2_000);`;
    const preload = `--import=data:text/javascript,${encodeURIComponent(crash)}`;
    await using actor = run.actor('one', { NODE_OPTIONS: preload });
    assert.equal(await actor.exitCode(), 1);
    const crashed = actor.log.find(({ msg }) => msg === 'crashed');
    assert.match(JSON.stringify(crashed), /decoder ended unexpectedly, with code 3/);
    assert.equal((await run.broker.depths()).tickets, 1);
  });
});

describe('an actor that cannot start', { timeout: 60_000 }, () => {
  it('an actor with wrong settings names every one of them', async () => {
    await using actor = new ServiceProcess('actor', ['--threads', '0', '--sampler', 'gpu']);
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, /--run[^]*--sampler[^]*--threads/);
  });

  for (const service of ['actor', 'reward-service'] as const) {
    it(`the ${service} names a server that does not answer in the time that it may wait`, async () => {
      const flags = ['--run', 'r', '--nats-url', 'nats://127.0.0.1:9'];
      await using process = new ServiceProcess(service, [
        ...flags,
        '--start-patience-seconds',
        '0',
      ]);
      assert.equal(await process.exitCode(), 2);
      assert.match(process.errors, /nats:\/\/127\.0\.0\.1:9.*--nats-url/);
      assert(!process.log.some(({ msg }) => msg === 'waiting for NATS'));
    });
  }
});
