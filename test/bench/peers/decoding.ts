import { Decoder } from '../../../shared/model/decoder.js';
import { createAdapter } from '../../../shared/model/lora.js';
import type { ModelConfig } from '../../../shared/model/model-config.js';
import { checkModelDirectory } from '../../../shared/model/model-directory.js';
import { isSmall, linearModules } from '../../../shared/model/parameters.js';
import { spentSince, startClocks, type Clocks } from './clocks.js';
import type { Round, Side } from './comparison.js';
import type { MachineRates } from './machine.js';

export const lora = { rank: 32, alpha: 64, attn: true, mlp: true, seed: 0 };

/** What a row decodes, on both sides. */
export interface DecodingWork {
  readonly prompt: number; // tokens
  readonly groups: number;
  readonly groupSize: number;
  readonly tokens: number; // of an answer; none ends earlier
  readonly repeats: number; // in a round
  /** Whether reading the prompts counts; else only the steps after the first token. */
  readonly countsPrompt: boolean;
}

/** Our decoder: an adapter of rank 32, sampling from the whole distribution, and a logprob for every token. */
export class OurDecoder implements Side {
  readonly #policy;

  private constructor(
    private readonly decoder: Decoder,
    private readonly work: DecodingWork,
  ) {
    this.#policy = { version: 0, adapter: createAdapter(decoder.config, lora) };
  }

  static async open(path: string, work: DecodingWork, threads: number): Promise<OurDecoder> {
    const directory = await checkModelDirectory(path);
    const ours = new OurDecoder(Decoder.of(directory, { threads }), work);
    await ours.round();
    return ours;
  }

  async round(): Promise<Round> {
    const { prompt, groups, groupSize, tokens, repeats, countsPrompt } = this.work;
    const { config } = this.decoder;
    const requests = Array.from({ length: groups }, (_, group) => ({
      prompt: Int32Array.from(
        { length: prompt },
        (_, i) => (37 * i + 11 + group) % config.vocabSize,
      ),
      ...{ count: groupSize, maxTokens: tokens, temperature: 1, stopTokenIds: [], seed: group },
    }));
    let [processor, wall] = [0, 0];
    for (let i = 0; i < repeats; i++) {
      let calls = 0; // one before the prompts are read, then one before each step
      let clocks: Clocks = startClocks();
      await this.decoder.sampleGroups(requests, () => {
        if (++calls === 2 && !countsPrompt) clocks = startClocks();
        return this.#policy;
      });
      const spent = spentSince(clocks);
      processor += spent.processor;
      wall += spent.wall;
    }
    const steps = countsPrompt ? tokens : tokens - 1;
    return { count: repeats * groups * groupSize * steps, processor, wall };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(); // the sessions go with the decoder
  }
}

/**
 * The most tokens in a second of one processor, in float32 with an adapter: every weight is read once a step, unless a
 * cache holds them, and multiplied with every row. Attention, drawing and reading the prompts are not counted.
 */
export function decodingLimit(config: ModelConfig, rows: number, machine: MachineRates): number {
  const { hiddenSize, vocabSize, numLayers } = config;
  let weights = hiddenSize * vocabSize;
  for (const { in: width, out } of linearModules(config)) {
    weights += numLayers * (width * out + lora.rank * (width + out));
  }
  const arithmetic = (2 * weights * rows) / machine.products;
  const reading = isSmall(config) ? 0 : (4 * weights) / machine.reads;
  return rows / Math.max(arithmetic, reading);
}
