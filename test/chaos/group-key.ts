import { createHash } from 'node:crypto';
import type { Datum } from '../../shared/rl/datum.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';

/** The key of a group in a message and in a pass: all its tokens and logprobs. */
export function keyOf({
  promptTokens,
  rollouts,
}: Pick<RolloutGroup, 'promptTokens' | 'rollouts'>): string {
  const hash = createHash('sha256');
  for (const { tokens, behaviorLogprobs } of rollouts) {
    const text = [...promptTokens, ...tokens];
    const unscored = new Array<number>(promptTokens.length - 1).fill(0);
    hash.update(bytes(Int32Array.from(text.slice(0, -1))));
    hash.update(bytes(Int32Array.from(text.slice(1))));
    hash.update(bytes(Float32Array.from([...unscored, ...behaviorLogprobs])));
  }
  return hash.digest('hex');
}

/** The key of a group's rollouts in a pass: position i scores token i + 1, the prompt's have logprob 0. */
export function keyOfData(data: readonly Datum[]): string {
  const hash = createHash('sha256');
  for (const { tokens, targetTokens, inputs } of data) {
    for (const array of [tokens, targetTokens, inputs.logprobs ?? new Float32Array()]) {
      hash.update(bytes(array));
    }
  }
  return hash.digest('hex');
}

function bytes({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
