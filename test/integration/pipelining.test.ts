import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { gate, until } from '../support/broker.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { TrainingGround } from '../support/training-ground.js';

const limits = { timeout: 240_000 };
/** The backend is asked for these before the first step: the state and the policy that it begins with. */
const opening = ['save_weights', 'save_weights_for_sampler'];
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
    const passes = proxy.calls.flatMap(({ pass }) => pass ?? []);
    assert.deepEqual(
      passes.map(({ data }) => data.length),
      [2 * 4, 2 * 4],
    );
  });
});

describe('a learner whose backend takes its time', limits, () => {
  const step = ['forward_backward', 'forward_backward', 'optim_step', 'save_weights_for_sampler'];
  const substeps = [...step.slice(1, 3), ...step.slice(1, 3), 'save_weights_for_sampler'];
  const ways: [flags: Record<string, number>, asked: string[]][] = [
    [{ 'num-substeps': 1, 'num-minibatches': 2 }, step],
    [{ 'num-substeps': 2, 'num-minibatches': 1 }, substeps],
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
