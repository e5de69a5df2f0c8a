import type { AdapterFile, SampleOrder } from './sampling-worker.js';

/** A sampling request that waits. */
export interface QueuedSample {
  readonly adapter: AdapterFile | undefined; // the base model's
  readonly order: SampleOrder;
}

const maxRows = 256; // decoded side by side; beyond it a step's time grows with them
const maxPromptTokens = 8_192; // with padding; they are read at once, which takes memory

/**
 * What is sampled side by side next: the first of the queue, and others that want the same weights and
 * as many samples, as far as there is room. The SDK's users send a request a rollout, hundreds at once.
 *
 * @returns `rest` keeps its order; `wave` is empty only if the queue is.
 */
export function takeWave<Item extends QueuedSample>(
  queue: readonly Item[],
): { wave: Item[]; rest: Item[] } {
  const wave: Item[] = [];
  const rest: Item[] = [];
  let longest = 0; // prompt in the wave
  for (const item of queue) {
    const { prompt, count } = item.order;
    const width = Math.max(longest, prompt.length);
    const size = wave.length + 1;
    const fits = size * count <= maxRows && size * width <= maxPromptTokens;
    const [first] = wave;
    if (first === undefined || (isAlike(item, first) && fits)) {
      wave.push(item);
      longest = width;
    } else rest.push(item);
  }
  return { wave, rest };
}

function isAlike(a: QueuedSample, b: QueuedSample): boolean {
  return a.adapter?.sha256 === b.adapter?.sha256 && a.order.count === b.order.count;
}
