import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { gate, until } from '../support/broker.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { TrainingGround } from '../support/training-ground.js';

const limits = { timeout: 240_000 };
/** The backend is asked for these before the first step: the state and the policy that it begins with. */
const opening = ['save_weights', 'save_weights_for_sampler'];
/** Its importance weights and its loss's ratio are against the policy at the start of the step. */
const decoupled = { loss: 'ppo', correction: 'token_weights' };
/** No group is without variance. */
const isCorrect = (_rollout: unknown, index: number) => index % 2 === 0;

describe('a learner of two minibatches of two groups', limits, () => {
  it('sends each as soon as its groups are here, and the optimizer step behind the last', async () => {
    await using ground = await TrainingGround.prepare('streams');
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

  it('asks for the logprobs of each first, where a correction needs them', async () => {
    await using ground = await TrainingGround.prepare('scores');
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

describe('a learner whose backend takes its time', limits, () => {
  const substep = ['forward_backward', 'optim_step'];
  const save = 'save_weights_for_sampler';
  const minibatches = { 'num-substeps': 1, 'num-minibatches': 2 };
  const substeps = { 'num-substeps': 2, 'num-minibatches': 1 };
  const ways: [flags: Record<string, number | string>, asked: string[]][] = [
    [minibatches, ['forward_backward', 'forward_backward', 'optim_step', save]],
    [substeps, [...substep, ...substep, save]],
    // The forward of the second step is asked for behind the first step's optimizer step: it is that of its weights.
    [
      { ...minibatches, ...decoupled },
      ['forward', 'forward_backward', 'forward', 'forward_backward', 'optim_step', save],
    ],
    // One for the batch, before its first substep moves the weights.
    [{ ...substeps, ...decoupled }, ['forward', ...substep, ...substep, save]],
  ];
  for (const [flags, asked] of ways) {
    it(`asks for two whole steps before the first result, with ${JSON.stringify(flags)}`, async () => {
      await using ground = await TrainingGround.prepare('pipelined');
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

/** Of each pass, its rollouts. */
function sizes(proxy: RecordingProxy): number[] {
  return proxy.calls.flatMap(({ pass }) => pass?.data.length ?? []);
}
