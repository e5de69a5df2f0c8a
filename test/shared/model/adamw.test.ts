import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AdamParams } from '../../../shared/rl/adam-params.js';
import { adamWStep, freshMoments } from '../../../shared/model/adamw.js';

const params: AdamParams = {
  learningRate: 0.1,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};
const vector = (...data: number[]) => new Map([['w', Float32Array.from(data)]]);
const parameters = (...data: number[]) =>
  new Map([['w', { dims: [data.length], data: Float32Array.from(data) }]]);
const close = (actual: number, expected: number) => {
  assert.ok(Math.abs(actual - expected) < 1e-6, `${actual} is not ${expected}`);
};

describe('an AdamW step', () => {
  it('an AdamW step first moves each weight by the learning rate against its gradient', () => {
    const weights = parameters(1, 1);
    adamWStep(weights, vector(3, -0.5), freshMoments(weights), params);
    close(weights.get('w')!.data[0]!, 0.9);
    close(weights.get('w')!.data[1]!, 1.1);
  });

  it('an AdamW step remembers earlier gradients: worked by hand for two steps', () => {
    // g = 1 then 0: m = 0.1 then 0.09, v = 0.05 then 0.0475; corrected by 1 - 0.9² and 1 - 0.95².
    const weights = parameters(0);
    const moments = freshMoments(weights);
    adamWStep(weights, vector(1), moments, params);
    adamWStep(weights, vector(0), moments, params);
    const second = (0.1 * (0.09 / 0.19)) / Math.sqrt(0.0475 / 0.0975);
    close(weights.get('w')!.data[0]!, -0.1 - second);
  });

  it('an AdamW step decays weights apart from the gradient', () => {
    const weights = parameters(2);
    adamWStep(weights, vector(0), freshMoments(weights), { ...params, weightDecay: 0.5 });
    close(weights.get('w')!.data[0]!, 2 * (1 - 0.1 * 0.5));
  });

  it('an AdamW step clips by the global norm and reports the norm before', () => {
    const clipped = parameters(0, 0);
    const moments = freshMoments(clipped);
    const { gradNorm } = adamWStep(clipped, vector(3, 4), moments, { ...params, gradClipNorm: 1 });
    close(gradNorm, 5);
    close(moments.first.get('w')![0]!, 0.1 * 0.6);
    close(moments.first.get('w')![1]!, 0.1 * 0.8);
    close(moments.second.get('w')![0]!, 0.05 * 0.6 ** 2);
    close(moments.second.get('w')![1]!, 0.05 * 0.8 ** 2);
  });

  it('an AdamW step adds eps to the root of the second moment after its correction', () => {
    const weights = parameters(0);
    adamWStep(weights, vector(3), freshMoments(weights), { ...params, eps: 2 });
    close(weights.get('w')!.data[0]!, -0.1 * (3 / (3 + 2)));
  });

  it('an AdamW step leaves the gradients unchanged', () => {
    const gradients = vector(3, 4);
    const weights = parameters(0, 0);
    adamWStep(weights, gradients, freshMoments(weights), { ...params, gradClipNorm: 1 });
    assert.deepEqual(gradients, vector(3, 4));
  });
});
