import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { TinkerClient } from '../../shared/tinker/client.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { silent } from '../support/log.js';
import { plainLoop } from '../support/plain-loop.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { apiKey, startsEven, TrainingGround } from '../support/training-ground.js';

const steps = 4;

describe('training with --max-steps-off-policy 0', { timeout: 240_000 }, () => {
  it('synchronous training sends the backend the same batches as a plain loop, cut in the same way', async () => {
    await using ground = await TrainingGround.prepare('plain');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const learner = ground.learner({
      'backend-url': proxy.url,
      'max-steps-off-policy': 0,
      'max-steps': steps,
      'num-substeps': 2,
      'num-minibatches': 1,
    });
    ground.actor('actor-0');
    ground.actor('actor-1');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    await using client = await TinkerClient.connect({
      baseUrl: ground.backendUrl,
      apiKey,
      log: silent,
      signal: new AbortController().signal,
    });
    const config = RunConfig.parse(
      JSON.parse(await readFile(join(ground.runDir, 'config.json'), 'utf8')),
    );
    const expected = await plainLoop({
      config,
      steps,
      model: ground.model,
      client,
      isCorrect: startsEven,
    });
    const trained = proxy.calls.flatMap(({ pass }) => (pass === undefined ? [] : [pass.data]));
    assert.equal(trained.length, steps * 2);
    assert.equal(expected.length, steps * 2);
    trained.forEach((minibatch, m) => {
      assert.equal(minibatch.length, expected[m]!.length);
      minibatch.forEach((datum, i) => {
        const plain = expected[m]![i]!;
        assert.deepEqual(datum.tokens, plain.tokens);
        assert.deepEqual(datum.targetTokens, plain.targetTokens);
        assert.deepEqual(datum.inputs.advantages, plain.inputs.advantages);
        datum.inputs.logprobs!.forEach((logprob, t) => {
          assert(Math.abs(logprob - plain.inputs.logprobs![t]!) < 1e-4);
        });
      });
    });
  });
});
