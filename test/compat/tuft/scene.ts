import assert from 'node:assert/strict';
import { TinkerClient, type TinkerClientOptions } from '../../../shared/tinker/client.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import type { Datum } from '../../../shared/rl/datum.js';
import type { ForwardBackwardResult } from '../../../shared/tinker/types.js';
import type { AdamParams } from '../../../shared/rl/adam-params.js';
import { LossName, lossSettings } from '../../../shared/rl/losses.js';
import { silent } from '../../support/log.js';
import type { SuiteContext } from '../suite.js';
import { apiKey } from './tuft-server.js';

/** The shipped model, by the name that the servers of these suites use. */
export const baseModel = 'offbeat/base';
export const lora = { baseModel, rank: 8 };

export const adam: AdamParams = {
  learningRate: 1e-3,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

/** Every loss, with all of its settings. */
export const losses = Object.fromEntries(
  LossName.options.map((name) => [name, lossSettings(name, { beta: 0.1 }, 'learner')]),
) as Readonly<Record<LossName, Readonly<Record<string, number>>>>;
export const lossNames = LossName.options;

export function connect(
  context: SuiteContext,
  url: string,
  options: Partial<TinkerClientOptions> = {},
): Promise<TinkerClient> {
  const { signal } = context;
  return TinkerClient.connect({ baseUrl: url, apiKey, log: silent, signal, ...options });
}

/** A training sequence with the inputs of every loss; its numbers depend only on its tokens. */
export function datum(tokens: readonly number[], loss: LossName): Datum {
  const length = tokens.length - 1;
  const targetTokens = Int32Array.from(tokens.slice(1));
  const advantages = Float32Array.from(targetTokens, (token, i) => ((token + i) % 7) / 3 - 1);
  const logprobs = Float32Array.from(targetTokens, (token, i) => -0.1 - ((3 * token + i) % 11) / 4);
  return {
    tokens: Int32Array.from(tokens.slice(0, length)),
    targetTokens,
    inputs:
      loss === 'cross_entropy' ? { weights: advantages.map(Math.abs) } : { logprobs, advantages },
  };
}

/** Two short sequences of one length: TuFT pads within a micro batch, which counts for dro. */
export function pair(loss: LossName): Datum[] {
  return [datum([3, 4, 5, 6, 7], loss), datum([8, 9, 10, 11, 12], loss)];
}

/** One optimizer step on `pair`, both calls sent before either is answered. */
export async function step(
  run: TrainingRun,
  loss: LossName = 'cross_entropy',
): Promise<ForwardBackwardResult> {
  const passed = run.forwardBackward(pair(loss), loss, losses[loss]);
  await run.optimStep(adam);
  return passed;
}

/** The run's current result for `pair`. */
export function look(run: TrainingRun): Promise<ForwardBackwardResult> {
  return run.forward(pair('cross_entropy'), 'cross_entropy', {});
}

export function lossOf({ metrics }: ForwardBackwardResult): number {
  const sum = metrics['loss:sum'];
  assert(sum !== undefined && Number.isFinite(sum), `the loss is ${String(sum)}`);
  return sum;
}

/** The largest distance between numbers at the same place. */
export function distance(left: readonly Float32Array[], right: readonly Float32Array[]): number {
  assert.deepEqual(
    left.map(({ length }) => length),
    right.map(({ length }) => length),
  );
  let largest = 0;
  left.forEach((values, i) => {
    values.forEach((value, j) => {
      largest = Math.max(largest, Math.abs(value - right[i]![j]!));
    });
  });
  return largest;
}

/** The name of an expected failure; any other outcome is an error. */
export async function failure(
  promise: Promise<unknown>,
  kind: abstract new (...args: never[]) => Error,
  says: RegExp = /./,
): Promise<string> {
  let caught: unknown;
  try {
    await promise;
  } catch (error) {
    caught = error;
  }
  assert(caught instanceof kind, `expected ${kind.name}, found ${String(caught)}`);
  assert.match(caught.message, says);
  return caught.name;
}
