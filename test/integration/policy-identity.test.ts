import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createAdapter, decodeAdapter, encodeAdapter } from '../../shared/model/lora.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { publishedAdapter } from '../actor/adapters.js';
import { runAlteredActor } from '../support/altered-actor.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { startsEven, TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const place = TrainingPlace.shared();

type Fault = Omit<Parameters<typeof runAlteredActor>[1], 'name' | 'modelDir' | 'alter'> & {
  readonly alter?: (request: GroupRequest) => GroupRequest;
};

const hot: Fault = {
  alter: (request) => ({ ...request, temperature: 1.1 * request.temperature }),
  isConsistent: true,
};

/** A run, and all groups that were sampled in it. */
async function startRun(name: string, flags: object) {
  const ground = await TrainingGround.at(place(), name);
  const learner = ground.learner({ 'max-steps': 3, ...flags });
  const groups: RolloutGroup[] = [];
  await ground.startScoring({
    alter: (group) => {
      groups.push(group);
      return group;
    },
  });
  return { ground, learner, groups, [Symbol.asyncDispose]: () => ground[Symbol.asyncDispose]() };
}

/** An actor with a fault, until the end of its scope. */
function startFaulty({ broker, model }: TrainingGround, name: string, fault: Fault) {
  const stop = new AbortController();
  const options = { name, modelDir: model.path, alter: (request: GroupRequest) => request };
  const faulty = runAlteredActor(broker, { ...options, ...fault }, stop.signal);
  return {
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await faulty;
    },
  };
}

async function runWithFault(name: string, fault: Fault, flags: object) {
  const run = await startRun(name, flags);
  const faulty = startFaulty(run.ground, 'faulty', fault);
  return {
    ...run,
    [Symbol.asyncDispose]: async () => {
      await faulty[Symbol.asyncDispose]();
      await run[Symbol.asyncDispose]();
    },
  };
}

/** What an actor may load instead of a version, each named as the actor is. At version 0, which changes nothing, most do not matter. */
const otherWeights = {
  'never-loads': (ground) => (manifest) => Promise.resolve([manifest, baseOf(ground, manifest)]),
  'previous-version': (ground) => {
    const seen = new Map<number, Uint8Array>(); // by version; an older one may be retired by then
    return async (manifest) => {
      seen.set(manifest.version, await ground.broker.policy.fetchAdapter(manifest));
      return [manifest, seen.get(manifest.version - 1) ?? baseOf(ground, manifest)];
    };
  },
  'half-the-alpha': (ground) => async (manifest) => {
    const adapter = { ...manifest.adapter!, alpha: manifest.adapter!.alpha / 2 };
    return [{ ...manifest, adapter }, await ground.broker.policy.fetchAdapter(manifest)];
  },
  'swaps-gate-and-up': (ground) => async (manifest) => {
    const { rank, alpha } = manifest.adapter!;
    const bytes = await ground.broker.policy.fetchAdapter(manifest);
    const { tensors } = decodeAdapter(bytes, { rank, alpha });
    const swap = (key: string) =>
      key.replace(/gate_proj|up_proj/, (name) => (name === 'up_proj' ? 'gate_proj' : 'up_proj'));
    const swapped = new Map([...tensors.keys()].map((key) => [key, tensors.get(swap(key))!]));
    return [manifest, encodeAdapter({ rank, alpha, tensors: swapped }).safetensors];
  },
  'of-another-run': (ground) => (manifest) => {
    return Promise.resolve([manifest, publishedAdapter(99, ground.model.config).bytes]);
  },
} satisfies Record<string, (ground: TrainingGround) => NonNullable<Fault['load']>>;

/** An adapter that changes nothing. */
function baseOf({ model }: TrainingGround, { adapter }: PolicyManifest): Uint8Array {
  const { rank, alpha } = adapter!;
  const scale = { rank, alpha, seed: 0, attn: true, mlp: true };
  return encodeAdapter(createAdapter(model.config, scale)).safetensors;
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

/** Waits until an actor's lease says that it refuses this version, or a later one. */
const refuses = (ground: TrainingGround, name: string, version: number) =>
  until(async () =>
    (await ground.broker.actors.list()).some(
      ({ actor, refused }) => actor === name && refused !== undefined && refused.version >= version,
    ),
  );

describe('a run whose only actor does not sample with the policy', { timeout: 240_000 }, () => {
  it('a run whose only actor samples at a wrong temperature trains nothing, says why, and trains when an honest actor joins', async () => {
    await using run = await runWithFault('hot', hot, {});
    const { ground, learner, groups } = run;
    await refuses(ground, 'faulty', 0);
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
});

describe('actors that load other weights than those of the version', { timeout: 240_000 }, () => {
  it('no group of theirs is sampled with a version that they lack, whether such an actor is alone or among honest ones', async () => {
    await using run = await startRun('others', { 'max-steps-off-policy': 0 });
    const { ground, learner, groups } = run;
    const faults = Object.entries(otherWeights).map(([name, load]) => {
      return { name, start: (as: string) => startFaulty(ground, as, { load: load(ground) }) };
    });
    for (const { name, start } of faults) {
      await using _alone = start(name);
      await refuses(ground, name, 1);
    }
    const alone = groups.length;
    assert(alone >= 4, 'the first one samples with version 0 as it should');

    const among = faults.map(({ name, start }) => start(`${name}-too`));
    await until(async () => {
      const told = new Set((await refusals(ground)).map(({ actor }) => actor));
      return faults.every(({ name }) => told.has(`${name}-too`));
    });
    assert.equal(groups.length, alone);
    ground.actor('honest');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    for (const { name } of faults) await refuses(ground, `${name}-too`, 2);
    await Promise.all(among.map((actor) => actor[Symbol.asyncDispose]()));

    const versionsOf = (isHonest: boolean) =>
      groups
        .filter(({ actor }) => (actor === 'honest') === isHonest)
        .flatMap(({ rollouts }) => rollouts.flatMap(({ versions }) => versions.map(([v]) => v)));
    assert.deepEqual(new Set(versionsOf(false)), new Set([0]));
    assert.deepEqual(new Set(versionsOf(true)), new Set([1, 2]));
    const steps = await ground.metrics();
    assert.deepEqual([steps.length, steps.at(-1)!['groups/without_certificate']], [3, 0]);
  });
});

describe(
  'a run whose only actor claims logprobs that are slightly off',
  { timeout: 240_000 },
  () => {
    const fault: Fault = {
      answer: (rollouts) =>
        Promise.resolve(
          rollouts.map((rollout) => ({
            ...rollout,
            behaviorLogprobs: rollout.behaviorLogprobs.map((logprob) => logprob - 0.02),
          })),
        ),
    };
    /** Waits until the learner quarantines the actor, and checks why. */
    async function quarantines({
      ground,
      learner,
    }: Pick<Awaited<ReturnType<typeof startRun>>, 'ground' | 'learner'>) {
      const { actor, why, bound } = (await learner.says(
        ({ msg }) => msg === 'actor quarantined',
      )) as { actor: string; why: string; bound: number };
      assert.deepEqual([actor, why, bound], ['faulty', 'version', 2e-4]);
      assert.deepEqual(await refusals(ground), []);
      await learner.stop('SIGTERM');
    }
    const flags = { 'max-steps': 1_000, 'audit-version-share': 1 };

    it('the audit of the version that a group names quarantines it, although no other actor can be compared with it', async () => {
      await using run = await runWithFault('slightly', fault, flags);
      await quarantines(run);
    });

    it('the audit quarantines it by the weights of a checkpoint, if the backend does not sample', async () => {
      await using ground = await TrainingGround.at(place(), 'trains-only');
      const lacking = { capabilities: ['sampling', 'prompt_logprobs'], calls: ['asample'] };
      await using proxy = await RecordingProxy.before(ground.backendUrl, undefined, lacking);
      const learner = ground.learner({
        ...flags,
        ...{ 'backend-url': proxy.url, 'checkpoint-every-steps': 1 },
      });
      await ground.startScoring();
      await using _faulty = startFaulty(ground, 'faulty', fault);
      await quarantines({ ground, learner });
    });
  },
);

describe('a run with an actor that selects its answers', { timeout: 240_000 }, () => {
  it('an actor that draws again where an answer is wrong is quarantined, and an honest one is not', async () => {
    const flags = { 'max-steps': 1_000, 'audit-selection-share': 1, 'audit-version-share': 0 };
    await using run = await runWithFault('selects', untilRight, flags);
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
