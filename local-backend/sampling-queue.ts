import type { SampledSequence } from '../shared/tinker/types.js';
import { takeWave, type QueuedSample } from './sample-wave.js';
import type { SamplingCalls } from './sampling-worker.js';
import type { WorkerCalls } from './worker-calls.js';

interface Waiting extends QueuedSample {
  readonly resolve: (sequences: SampledSequence[]) => void;
  readonly reject: (error: unknown) => void;
}

/** The requests in front of the sampling thread, which it takes wave by wave. */
export class SamplingQueue {
  #waiting: Waiting[] = [];
  #isServed = false;

  /** @param worker the sampling thread, started when first needed. */
  constructor(private readonly worker: () => Pick<WorkerCalls<SamplingCalls>, 'call'>) {}

  /** How many requests wait for a wave. */
  get depth(): number {
    return this.#waiting.length;
  }

  sample(request: QueuedSample): Promise<SampledSequence[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...request, resolve, reject });
      if (this.#isServed) return;
      this.#isServed = true;
      setImmediate(() => void this.#serve()); // those that arrive together go together
    });
  }

  async #serve(): Promise<void> {
    while (this.#waiting.length > 0) {
      const { wave, rest } = takeWave(this.#waiting);
      this.#waiting = rest;
      await this.#sampleWave(wave);
    }
    this.#isServed = false;
  }

  async #sampleWave(wave: readonly Waiting[]): Promise<void> {
    try {
      const sampled = await this.worker().call('sample', {
        adapter: wave[0]!.adapter,
        // The call gives its memory away, and these may be needed again.
        orders: wave.map(({ order }) => ({ ...order, prompt: order.prompt.slice() })),
      });
      wave.forEach(({ resolve }, i) => {
        resolve(sampled[i]!);
      });
    } catch (error) {
      // One of them may be at fault, and the others must not suffer for it.
      if (wave.length > 1) for (const one of wave) await this.#sampleWave([one]);
      else wave[0]!.reject(error);
    }
  }
}
