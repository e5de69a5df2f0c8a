import { z } from 'zod';
import { real, whole } from './fields.js';

/** What is trained, and how its weights move. */
export const Optimizer = z.object({
  loraRank: whole.positive().default(32).describe('rank of the adapter.'),
  learningRate: real.positive().default(5e-4).describe('of AdamW.'),
  beta1: real.min(0).lt(1).default(0.9).describe('of AdamW.'),
  beta2: real.min(0).lt(1).default(0.95).describe('of AdamW.'),
  eps: real.positive().default(1e-12).describe('of AdamW.'),
  weightDecay: real.min(0).default(0).describe('of AdamW, decoupled.'),
  gradClipNorm: real.min(0).default(0).describe('largest global gradient norm; 0: no clipping.'),
});
