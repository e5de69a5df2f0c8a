import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RecordingProxy } from '../support/recording-proxy.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const place = TrainingPlace.shared();

const limits = { timeout: 240_000 };
/** Backend requests before the first step: the initial state and policy. */
const opening = ['save_weights', 'save_weights_for_sampler'];
/** Importance weights and the loss's ratio refer to the policy at the start of the step. */
const decoupled = { loss: 'ppo', correction: 'token_weights' };
/** Every group has variance. */
const isCorrect = (_rollout: unknown, index: number) => index % 2 === 0;

describe('a learner of two minibatches of two groups', limits, () => {
  it('a learner sends each minibatch once its groups have arrived, and the optimizer step after the last', async () => {
    await using ground = await TrainingGround.at(place(), 'streams');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const learner = ground.learner({ 'backend-url': proxy.url, 'max-steps': 1 });
    const rest = gate(); // all but the first two tickets
    ground.actor('actor-0');
    const before = (order: number) => (order < 2 ? Promise.resolve() : rest.opened);
    await ground.startScoring({ isCorrect, before });

    await until(() => proxy.calls.length > opening.length);
    assert.deepEqual(proxy.operations, [...opening, 'forward_backward']);
    rest.open();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.deepEqual(proxy.operations, [
      ...opening,
      'forward_backward',
      'forward_backward',
      'optim_step',
      'save_weights_for_sampler',
      'save_weights',
    ]);
    assert.deepEqual(sizes(proxy), [2 * 4, 2 * 4]);
  });

  it('a learner first requests the logprobs of each minibatch if a correction needs them', async () => {
    await using ground = await TrainingGround.at(place(), 'scores');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const release = proxy.hold('forward');
    const learner = ground.learner({ 'backend-url': proxy.url, 'max-steps': 1, ...decoupled });
    const rest = gate(); // all but the first two tickets
    ground.actor('actor-0');
    const before = (order: number) => (order < 2 ? Promise.resolve() : rest.opened);
    await ground.startScoring({ isCorrect, before });

    await until(() => proxy.calls.length > opening.length);
    assert.deepEqual(proxy.operations, [...opening, 'forward']);
    release();
    await until(() => proxy.calls.length > opening.length + 1);
    assert.deepEqual(proxy.operations, [...opening, 'forward', 'forward_backward']);
    rest.open();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.deepEqual(proxy.operations, [
      ...opening,
      'forward',
      'forward_backward',
      'forward',
      'forward_backward',
      'optim_step',
      'save_weights_for_sampler',
      'save_weights',
    ]);
    assert.deepEqual(sizes(proxy), [2 * 4, 2 * 4, 2 * 4, 2 * 4]);
  });
});

describe('a learner with a slow backend', limits, () => {
  const substep = ['forward_backward', 'optim_step'];
  const save = 'save_weights_for_sampler';
  const minibatches = { 'num-substeps': 1, 'num-minibatches': 2 };
  const substeps = { 'num-substeps': 2, 'num-minibatches': 1 };
  const ways: [flags: Record<string, number | string>, asked: string[]][] = [
    [minibatches, ['forward_backward', 'forward_backward', 'optim_step', save]],
    [substeps, [...substep, ...substep, save]],
    // The forward of the second step is requested after the first optimizer step, so it uses the new weights.
    [
      { ...minibatches, ...decoupled },
      ['forward', 'forward_backward', 'forward', 'forward_backward', 'optim_step', save],
    ],
    // One for the batch, before its first substep changes the weights.
    [{ ...substeps, ...decoupled }, ['forward', ...substep, ...substep, save]],
  ];
  for (const [i, [flags, asked]] of ways.entries()) {
    it(`a learner requests two whole steps before the first result, with ${JSON.stringify(flags)}`, async () => {
      await using ground = await TrainingGround.at(place(), `pipelined-${i}`);
      await using proxy = await RecordingProxy.before(ground.backendUrl);
      const release = proxy.hold('forward_backward');
      const learner = ground.learner({ 'backend-url': proxy.url, 'max-steps': 2, ...flags });
      ground.actor('actor-0');
      await ground.startScoring({ isCorrect });

      const expected = [...opening, ...asked, ...asked];
      await until(() => proxy.calls.length >= expected.length);
      assert.deepEqual(proxy.operations, expected);
      assert(!learner.log.some(({ msg }) => msg === 'step trained'));
      release();
      assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
      assert.deepEqual(proxy.operations, [...expected, 'save_weights']);
    });
  }
});

/** The rollouts of each pass. */
function sizes(proxy: RecordingProxy): number[] {
  return proxy.calls.flatMap(({ pass }) => pass?.data.length ?? []);
}
