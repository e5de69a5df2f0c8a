import type { TinkerPath } from '../shared/tinker/tinker-path.js';

/** `weights` hold adapter and optimizer, to train on; `sampler_weights` the adapter alone. */
export const checkpointKinds = ['weights', 'sampler_weights'] as const;

/** `tinker://<run>/<kind>/<name>` */
export function formatTinkerPath({ runId, kind, name }: TinkerPath): string {
  return `tinker://${runId}/${kind}/${name}`;
}

/** `checkpoint-0001`, `checkpoint-0002`, …: the first number above those in use. */
export function nextAutomaticName(names: Iterable<string>): string {
  let last = 0;
  for (const name of names) {
    const [, number] = /^checkpoint-([0-9]{4,9})$/.exec(name) ?? [];
    if (number !== undefined) last = Math.max(last, Number(number));
  }
  return `checkpoint-${String(last + 1).padStart(4, '0')}`;
}
