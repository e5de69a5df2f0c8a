import { decode, encode } from '../../shared/wire/codec.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { Figure } from './main.js';
import { medianSeconds } from './stopwatch.js';

/** The size of a group on the wire: 16 rollouts of 256 tokens. */
export async function benchWire(): Promise<Figure[]> {
  const [groupSize, length] = [16, 256];
  const group: RolloutGroup = {
    v: 1,
    ticket: {
      v: 1,
      ticketId: 'train-1',
      order: 1,
      problemId: '3,7,21=84',
      split: 'train',
      groupSize,
      issuedAtVersion: 0,
      attempt: 0,
      samplingParams: { temperature: 1, maxTokens: length, seed: 0 },
    },
    actor: 'actor-0',
    promptTokens: Int32Array.from({ length: 64 }, (_, i) => i),
    rollouts: Array.from({ length: groupSize }, () => ({
      tokens: Int32Array.from({ length }, (_, i) => i * 97),
      behaviorLogprobs: Float32Array.from({ length }, (_, i) => -i / length),
      versions: [[3, length]],
      stopReason: 'length' as const,
    })),
    startedAt: 0,
    finishedAt: 1,
  };
  const bytes = encode(RolloutGroup, group);
  const repeats = 200;
  const encoding = await medianSeconds(5, () => {
    for (let i = 0; i < repeats; i++) encode(RolloutGroup, group);
  });
  const decoding = await medianSeconds(5, () => {
    for (let i = 0; i < repeats; i++) decode(RolloutGroup, 'bench', bytes);
  });
  const tokens = groupSize * length;
  return [
    { what: 'bytes a token', value: bytes.byteLength / tokens, unit: 'bytes' },
    { what: 'groups encoded', value: repeats / encoding, unit: 'groups/s' },
    { what: 'groups decoded and checked', value: repeats / decoding, unit: 'groups/s' },
  ];
}
