import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createAdapter, encodeAdapter } from '../../shared/model/lora.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { runAlteredActor } from '../support/altered-actor.js';
import { until } from '../support/broker.js';
import { startsEven, TrainingGround } from '../support/training-ground.js';

type Fault = Omit<Parameters<typeof runAlteredActor>[1], 'name' | 'modelDir' | 'alter'> & {
  readonly alter?: (request: GroupRequest) => GroupRequest;
};

const hot: Fault = {
  alter: (request) => ({ ...request, temperature: 1.1 * request.temperature }),
  isConsistent: true,
};

/** A run, all groups that were sampled in it, and an actor with a fault. */
async function runWithFault(name: string, fault: (ground: TrainingGround) => Fault, flags: object) {
  const ground = await TrainingGround.prepare(name);
  const learner = ground.learner({ 'max-steps': 3, ...flags });
  const groups: RolloutGroup[] = [];
  await ground.startScoring({
    alter: (group) => {
      groups.push(group);
      return group;
    },
  });
  const stop = new AbortController();
  const faulty = runAlteredActor(
    ground.broker,
    {
      ...{ name: 'faulty', modelDir: ground.model.path, alter: (request) => request },
      ...fault(ground),
    },
    stop.signal,
  );
  return {
    ...{ ground, learner, groups },
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await faulty;
      await ground[Symbol.asyncDispose]();
    },
  };
}

/** Sends right answers where it can: it draws once more where one is wrong. The logprobs are honest. */
const untilRight: Fault = {
  answer: async (rollouts, again) => {
    const others = await again();
    return rollouts.map((rollout, r) => (startsEven(rollout) ? rollout : others[r]!));
  },
};

async function refusals(ground: TrainingGround) {
  const found: Extract<RunEvent, { kind: 'refusal' }>[] = [];
  for await (const event of ground.broker.events.past(new AbortController().signal)) {
    if (event.kind === 'refusal') found.push(event);
  }
  return found;
}

/** Whether an actor's lease says that it refuses this version. */
const refuses = (ground: TrainingGround, version: number) =>
  until(async () =>
    (await ground.broker.actors.list()).some(({ refused }) => refused?.version === version),
  );

describe('a run whose only actor does not sample with the policy', { timeout: 240_000 }, () => {
  it('a run whose only actor samples at a wrong temperature trains nothing, says why, and trains when an honest actor joins', async () => {
    await using run = await runWithFault('hot', () => hot, {});
    const { ground, learner, groups } = run;
    await refuses(ground, 0);
    const { actor, difference, band } = (await learner.says(
      ({ msg }) => msg === 'actor does not reproduce the policy',
    )) as { actor: string; difference: number; band: number };
    assert.deepEqual([actor, difference > band], ['faulty', true]);
    assert.equal(groups.length, 0);
    const told = (await refusals(ground)).map((event) => [event.actor, event.version]);
    assert.deepEqual(told, [['faulty', 0]]);

    ground.actor('honest');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.deepEqual(new Set(groups.map((group) => group.actor)), new Set(['honest']));
    const last = (await ground.metrics()).at(-1)!;
    assert.deepEqual([last['step'], last['groups/without_certificate']], [3, 0]);
    for (const { certificate, rollouts } of groups) {
      const versions = rollouts.flatMap((rollout) => rollout.versions.map(([version]) => version));
      const proven = new Set(certificate?.canaries.map(([version]) => version));
      assert.deepEqual(proven, new Set(versions));
    }
  });

  it('a run whose only actor never loads an adapter trains on none of its groups after the base', async () => {
    const fault = ({ model }: TrainingGround): Fault => ({
      load: (manifest: PolicyManifest) => {
        const scale = { rank: 4, alpha: 8, seed: 0, attn: true, mlp: true };
        const { safetensors } = encodeAdapter(createAdapter(model.config, scale));
        const adapter = { ...manifest.adapter!, rank: scale.rank, alpha: scale.alpha };
        return Promise.resolve([{ ...manifest, adapter }, safetensors] as const);
      },
    });
    await using run = await runWithFault('base', fault, { 'max-steps-off-policy': 0 });
    const { ground, learner, groups } = run;
    await refuses(ground, 1);
    const ofBase = groups.length;
    ground.actor('honest');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert((await ground.metrics()).length === 3);
    const versionsOf = (name: string) =>
      groups
        .filter(({ actor }) => actor === name)
        .flatMap(({ rollouts }) => rollouts.flatMap(({ versions }) => versions.map(([v]) => v)));
    assert(ofBase >= 4);
    assert.deepEqual(new Set(versionsOf('faulty')), new Set([0]));
    assert.deepEqual(new Set(versionsOf('honest')), new Set([1, 2]));
  });
});

describe(
  'a run whose only actor claims logprobs that are slightly off',
  { timeout: 240_000 },
  () => {
    it('the audit of the version that a group names quarantines it, although no other actor can be compared with it', async () => {
      const fault = (): Fault => ({
        answer: (rollouts) =>
          Promise.resolve(
            rollouts.map((rollout) => ({
              ...rollout,
              behaviorLogprobs: rollout.behaviorLogprobs.map((logprob) => logprob - 0.02),
            })),
          ),
      });
      const flags = { 'max-steps': 1_000, 'audit-version-share': 1 };
      await using run = await runWithFault('slightly', fault, flags);
      const { ground, learner } = run;
      const { actor, why, bound } = (await learner.says(
        ({ msg }) => msg === 'actor quarantined',
      )) as { actor: string; why: string; bound: number };
      assert.deepEqual([actor, why, bound], ['faulty', 'version', 2e-4]);
      assert.deepEqual(await refusals(ground), []);
      await learner.stop('SIGTERM');
    });
  },
);

describe('a run with an actor that selects its answers', { timeout: 240_000 }, () => {
  it('an actor that draws again where an answer is wrong is quarantined, and an honest one is not', async () => {
    const flags = { 'max-steps': 1_000, 'audit-selection-share': 1, 'audit-version-share': 0 };
    await using run = await runWithFault('selects', () => untilRight, flags);
    const { ground, learner } = run;
    ground.actor('honest');
    const quarantined = async () => (await ground.broker.policy.current())?.quarantined;
    await until(async () => (await quarantined()) !== undefined);
    const replays = async () => {
      const agrees = /rl_groups_replayed_total\{outcome="agrees"\} (\d+)/;
      return Number(agrees.exec((await learner.ask('/metrics')).body)?.[1] ?? 0);
    };
    const before = await replays();
    await until(async () => (await replays()) >= before + 20);
    assert.deepEqual(await quarantined(), ['faulty']);
    assert.equal(await learner.stop('SIGTERM'), 0, learner.errors + learner.tail);
    const found: unknown[] = [];
    for await (const event of ground.broker.events.past(new AbortController().signal)) {
      if (event.kind === 'quarantine') found.push([event.actor, event.why]);
    }
    assert.deepEqual(found, [['faulty', 'replay']]);
  });
});
