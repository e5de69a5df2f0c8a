import { WaveQueue } from '../shared/model/wave-queue.js';
import type { WorkerCalls } from '../shared/service/worker-calls.js';
import type { SampledSequence } from '../shared/tinker/types.js';
import type { AdapterFile, SampleOrder, SamplingCalls } from './sampling-worker.js';

/** A sampling request that waits. */
export interface QueuedSample {
  readonly adapter: AdapterFile | undefined; // the base model's
  readonly order: SampleOrder;
}

const maxRows = 256; // decoded side by side; beyond it a step's time grows with them
const maxPromptTokens = 8_192; // with padding; they are read at once, which takes memory

/**
 * Whether a request can be sampled beside others: it wants the same weights and as many samples, and
 * all of them fit. The SDK's users send a request a rollout, hundreds at once.
 */
export function joinsWave({ adapter, order }: QueuedSample, wave: readonly QueuedSample[]) {
  const [first] = wave;
  const isAlike = adapter?.sha256 === first!.adapter?.sha256 && order.count === first!.order.count;
  const size = wave.length + 1;
  if (!isAlike || size * order.count > maxRows) return false;
  const width = wave.reduce((most, one) => Math.max(most, one.order.prompt.length), 0);
  return size * Math.max(width, order.prompt.length) <= maxPromptTokens;
}

/** The requests in front of the sampling thread, which it takes wave by wave. */
export class SamplingQueue {
  readonly #queue: WaveQueue<QueuedSample, SampledSequence[]>;

  /** @param worker the sampling thread, started when first needed. */
  constructor(worker: () => Pick<WorkerCalls<SamplingCalls>, 'call'>) {
    this.#queue = new WaveQueue(joinsWave, (wave) =>
      worker().call('sample', {
        adapter: wave[0]!.adapter,
        // The call gives its memory away, and these may be needed again.
        orders: wave.map(({ order }) => ({ ...order, prompt: order.prompt.slice() })),
      }),
    );
  }

  /** How many requests wait for a wave. */
  get depth(): number {
    return this.#queue.depth;
  }

  sample(request: QueuedSample): Promise<SampledSequence[]> {
    const sampled = this.#queue.add({ ...request });
    setImmediate(() => void this.#queue.serve()); // those that arrive together go together
    return sampled;
  }
}
