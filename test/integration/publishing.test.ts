import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { samplingApiKey, TrainingGround } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

/** The messages in the run's object store of adapters. */
async function stored({ broker, run }: TrainingGround): Promise<number> {
  return (await broker.link.jsm.streams.info(`OBJ_weights_${run}`)).state.last_seq;
}

const stepsOf = async (ground: TrainingGround) => (await ground.metrics().catch(() => [])).length;

describe('a run whose actors all sample at the backend', { timeout: 240_000 }, () => {
  it('no adapter is uploaded until an actor with its own engine joins, which gets that of the current version at once', async () => {
    await using ground = await TrainingGround.prepare('asked');
    const learner = ground.learner({ 'max-steps': 1_000, 'publish-adapters': 'asked' });
    const groups: RolloutGroup[] = [];
    const halted = gate();
    let mayScore = true;
    await ground.startScoring({
      before: () => (mayScore ? Promise.resolve() : halted.opened),
      alter: (group) => {
        groups.push(group);
        return group;
      },
    });
    const atBackend = [`--backend-url=${ground.backendUrl}`, `--api-key=${samplingApiKey}`];
    ground.actor('backend', '--sampler=tinker', '--sampler-class=fp32', ...atBackend);
    await until(async () => (await stepsOf(ground)) >= 3);
    assert.equal(await stored(ground), 0);
    mayScore = false; // no newer version may come to the actor's help
    await until(async () => (await ground.broker.backlog()).streams.tickets.messages === 0);
    const before = (await ground.broker.policy.current())!;
    assert.deepEqual([before.adapter, before.adapterOnRequest], [undefined, true]);

    const own = ground.actor('own');
    await own.says(({ msg }) => msg === 'waiting for an adapter');
    const { version } = await own.says(({ msg }) => msg === 'policy adopted');
    const now = (await ground.broker.policy.current())!;
    assert.deepEqual([now.version, now.adapterOnRequest], [version, undefined]);
    assert.match(now.adapter!.uri, /^nats:adapter-/);
    assert((await stored(ground)) > 0);

    mayScore = true;
    halted.open();
    await until(() => groups.some(({ actor }) => actor === 'own'));
    const steps = await stepsOf(ground);
    await until(async () => (await stepsOf(ground)) >= steps + 3);
    assert.notEqual((await ground.broker.policy.current())?.adapter, undefined);
    await learner.stop('SIGTERM');
  });
});

describe('a run whose adapters are elsewhere than in NATS', { timeout: 240_000 }, () => {
  it('adapters in a shared folder, rounded to bfloat16, are sampled with, and old ones are deleted', async () => {
    await using ground = await TrainingGround.prepare('folder');
    const folder = join(ground.folder, 'shared');
    const learner = ground.learner({
      ...{ 'max-steps': 8, 'audit-version-share': 1 },
      ...{ 'adapter-store': folder, 'adapter-dtype': 'bf16' },
    });
    await ground.startScoring();
    ground.actor('own', `--adapter-sources=${folder}`);
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const steps = await ground.metrics();
    const { 'groups/without_certificate': uncertified, 'actors/quarantined': quarantined } =
      steps.at(-1)!;
    assert.deepEqual([steps.length, uncertified, quarantined], [8, 0, 0]);
    assert.equal(await stored(ground), 0);
    const { adapter } = (await ground.broker.policy.current())!;
    assert.equal(adapter?.format, 'BF16');
    const files = await readdir(join(folder, 'folder'));
    assert(files.includes(adapter.uri.split('/').at(-1)!));
    assert.equal(files.length, (await ground.broker.policy.versions()).length);
    assert(files.length < 8, files.join());
  });

  it("the backend's own links are passed on, and an actor that may not follow them says so and ends", async () => {
    await using ground = await TrainingGround.prepare('link');
    const learner = ground.learner({ 'max-steps': 5, 'adapter-store': 'link' });
    await ground.startScoring();
    const careful = ground.actor('careful');
    assert.notEqual(await careful.exitCode(), 0);
    assert.match(
      careful.errors + careful.tail,
      /an adapter is at http:\/\/127.0.0.1:\d+, .*--adapter-sources is empty/,
    );
    ground.actor('own', `--adapter-sources=${ground.backendUrl}`);
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.equal((await ground.metrics()).length, 5);
    assert.equal(await stored(ground), 0);
    const { adapter } = (await ground.broker.policy.current())!;
    assert(adapter!.uri.startsWith(`${ground.backendUrl}/`));
    const runs = ground.place.checkpoints;
    const [run] = (await readdir(runs)).filter((name) => name !== '.lock');
    const kept = await readdir(join(runs, run!, 'external_weights'));
    assert(kept.length <= (await ground.broker.policy.versions()).length, kept.join());
  });
});
