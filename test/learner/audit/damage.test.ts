import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { damagingActors } from '../../../learner/audit/damage.js';
import {
  prepareMinibatches,
  sendMinibatch,
  type PassSettings,
} from '../../../learner/step/minibatch-pass.js';
import type { TrainedGroup } from '../../../learner/step/collected-step.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../../support/messages.js';

/** A backend whose policy gives every token a logprob of -1. */
const answer = (data: readonly Datum[]) =>
  Promise.resolve({
    logprobs: data.map(({ tokens }) => new Float32Array(tokens.length).fill(-1)),
    metrics: { 'loss:sum': 0 },
  });
const run = { forwardBackward: answer, forward: answer };

const law = { version: 0, maxStepsOffPolicy: 0, rewinds: [] };

/** A step of groups with rewards 1 and 0; the liar's group claims this logprob for one of its tokens. */
async function damage(config: PassSettings, claim: number, others = 2) {
  const honest = Array.from({ length: others }, (_, i) => `honest-${i}`);
  const made = ['liar', ...honest].map((actor) => {
    const rollouts = [0, 1].map((i) => {
      const behaviorLogprobs = new Float32Array(4).fill(-1);
      if (actor === 'liar' && i === 1) behaviorLogprobs[2] = claim;
      return rollout(4, { behaviorLogprobs });
    });
    const scored = scoredGroup({ group: rolloutGroup({ actor, rollouts }) });
    scored.scores[1] = { ...scored.scores[1]!, reward: 0 };
    return scored;
  });
  const [prepared] = await prepareMinibatches({ run, base: undefined }, config, [made], law);
  const result = await sendMinibatch(run, config, prepared!);
  const trained = made.map((scored): TrainedGroup => {
    const group = { scored, seq: 0, sampledBy: [0], arrivedAtVersion: 0 };
    return { group, staleness: 0, substep: 0 };
  });
  return (isQuarantined: (actor: string) => boolean) =>
    damagingActors(trained, [result], isQuarantined);
}

describe('damagingActors', () => {
  const isLiar = (actor: string) => actor === 'liar';
  const losses: [name: PassSettings['loss']['name'], config: Record<string, number>][] = [
    ['importance_sampling', {}],
    ['ppo', { clip_low_threshold: 0.8, clip_high_threshold: 1.2 }],
    ['dro', { beta: 1 }],
  ];
  for (const [name, config] of losses) {
    it(`one false claim damages a step trained with ${name}`, async () => {
      const settings = runConfig({ loss: { name, config } });
      assert.deepEqual((await damage(settings, -28))(isLiar), ['liar']);
      assert.deepEqual((await damage(settings, -1.5))(isLiar), []);
    });
  }

  it('a false claim does not damage a step trained with cispo, which bounds the ratio', async () => {
    assert.deepEqual((await damage(runConfig(), -28))(isLiar), []);
  });

  it('a false claim does not damage a step whose unbounded loss has truncated importance weights', async () => {
    const settings = runConfig({
      loss: { name: 'importance_sampling', config: {} },
      correction: { weights: { kind: 'token', cap: 2 }, mask: { kind: 'none' } },
    });
    assert.deepEqual((await damage(settings, -28))(isLiar), []);
  });

  it('a group that pulls no more than an honest one does not damage a step, even if it is the only group', async () => {
    const settings = runConfig({ loss: { name: 'importance_sampling', config: {} } });
    assert.deepEqual((await damage(settings, -1.5, 0))(isLiar), []);
  });

  it('a false claim does not damage a step whose honest groups outweigh it', async () => {
    const settings = runConfig({ loss: { name: 'importance_sampling', config: {} } });
    const ratioOf40 = -1 - Math.log(40);
    assert.deepEqual((await damage(settings, ratioOf40))(isLiar), ['liar']);
    assert.deepEqual((await damage(settings, ratioOf40, 10))(isLiar), []);
  });

  it('actors that are not quarantined are not blamed for a damaged step', async () => {
    const settings = runConfig({ loss: { name: 'importance_sampling', config: {} } });
    const judge = await damage(settings, -28);
    assert.deepEqual(
      judge((actor) => actor === 'honest-0'),
      [],
    );
    assert.deepEqual(
      judge(() => false),
      [],
    );
  });
});
