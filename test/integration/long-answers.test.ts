import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { chatModel } from '../support/chat-model.js';
import { UpProcess } from '../support/up-process.js';

describe('answers of hundreds of tokens', { timeout: 300_000 }, () => {
  it('a run with a Chinese chat prompt samples, scores and trains on them, with the logprobs that they were sampled with', async () => {
    await using model = await chatModel();
    const prompts = ['--prompt-style=think', '--prompt-language=zh', '--max-tokens=320'];
    const batches = [
      '--groups-per-batch=2',
      '--group-size=4',
      '--num-minibatches=1',
      '--lora-rank=2',
    ];
    // A random model earns nothing, so the reward is a coin; without stale data both sides have the same weights.
    const control = ['--shaping=random', '--max-steps-off-policy=0', '--train-size=64'];
    const limits = [
      '--max-steps=3',
      '--eval-problems=2',
      '--eval-samples=1',
      '--actors=1',
      '--json',
    ];
    const flags = [`--model-dir=${model.path}`, ...prompts, ...batches, ...control, ...limits];
    await using up = await UpProcess.start(flags);
    assert.equal(await up.ended(), 0, up.err);
    const summary = Summary.parse(JSON.parse(up.out));
    assert.equal(summary.steps, 3);
    assert(summary.groups.trained >= 6);
    const steps = (await up.read('metrics.jsonl'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, number>);
    for (const metrics of steps) {
      const truncated = metrics['env/all/truncated']!;
      assert(truncated > 0 && truncated <= 1, `${truncated}`);
      assert(metrics['ac_tokens_per_turn']! > 100);
      assert.equal(metrics['env/all/format'], 0);
      assert(metrics['kl_sample_train_v2']! < 1e-6, `${metrics['kl_sample_train_v2']}`);
    }
  });
});
