import { setTimeout as sleep } from 'node:timers/promises';
import { Counter } from 'prom-client';
import type { Arithmetic } from '../../shared/base/arithmetic.js';
import { errorText } from '../../shared/base/errors.js';
import { markHandled } from '../../shared/base/task-scope.js';
import { choosePlaces, type Candidate } from '../../shared/rl/canary.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { Canary } from '../../shared/wire/canary.js';
import { unweightedDatum } from '../step/datums.js';
import type { IdleClock } from '../step/idle-clock.js';
import { createRandom } from '../../shared/base/random.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import { promptTokens, type PromptTokenizer } from '../../shared/tasks/prompt.js';
import type { Task } from '../../shared/tasks/task.js';

const missing = new Counter({
  name: 'rl_versions_without_canary_total',
  help: 'Policy versions that were published without a canary, because the backend did not compute its logprobs.',
});

interface CanarySourceOptions {
  readonly run: Pick<TrainingRun, 'forward'>;
  readonly texts: Canary['texts'];
  readonly temperature: number; // of sampling
  readonly arithmetic: Arithmetic; // the trainer's
  readonly idle: IdleClock;
  readonly limitMs?: number | undefined; // for the logprobs to arrive once the weights are saved
  readonly log: Logger;
}

/** Tokens at a text's end among which a canary chooses: a sampler decodes them one by one. */
const lastTokens = 24;
/** Tokens of a canary. */
const size = 32;

/** What a version gives all tokens of the texts. */
interface Scored {
  readonly version: number;
  readonly logprobs: readonly Float32Array[]; // for each text [T - 1] those of its tokens from the second on
}

/** Makes the canary of each version, by a forward pass of the weights in training. */
export class CanarySource {
  /** Of the first and the last version of this session. */
  #earlier: readonly Scored[] = [];

  constructor(private readonly options: CanarySourceOptions) {}

  /**
   * Asks for the canary of the weights that the operations called so far produce; the pass is in the backend's queue when
   * this returns.
   *
   * @returns a function that waits for the canary; undefined if it does not come in time.
   */
  request(version: number): () => Promise<Canary | undefined> {
    const { run, texts, temperature, idle, limitMs = 60_000, log } = this.options;
    if (texts.length === 0) return () => Promise.resolve(undefined);
    const data = texts.map((text) => unweightedDatum(text.slice(0, 1), text.slice(1)));
    const passed = markHandled(idle.during(run.forward(data, 'cross_entropy', { temperature })));
    return async () => {
      try {
        const late = sleep(limitMs, undefined, { ref: false });
        const result = await Promise.race([passed, late]);
        if (result !== undefined) return this.#canaryOf({ version, logprobs: result.logprobs });
        throw new Error(`no answer within ${limitMs / 1_000} s of the saved weights`);
      } catch (caught) {
        missing.inc();
        log.warn({ version, reason: errorText(caught) }, 'version published without a canary');
        return undefined;
      }
    };
  }

  #canaryOf(scored: Scored): Canary {
    const { texts, temperature, arithmetic } = this.options;
    const { version, logprobs } = scored;
    const candidates = texts.flatMap(({ length }, text): Candidate[] =>
      Array.from({ length: Math.min(lastTokens, length - 1) }, (_, i) => {
        const index = length - 1 - i;
        return { text, index, logprob: logprobs[text]![index - 1]! };
      }),
    );
    const finite = candidates.filter(({ logprob }) => Number.isFinite(logprob));
    const chosen = choosePlaces(finite, size);
    if (chosen.length === 0) throw new Error('no logprob of its tokens is finite');
    const at = (of: Scored) =>
      Float32Array.from(chosen, ({ text, index }) => Math.min(0, of.logprobs[text]![index - 1]!));
    // After an undone step a version is made once more.
    const before = this.#earlier.filter((one) => one.version < version);
    this.#earlier = [...before.slice(0, 1), scored];
    const earlier = before
      .map((one) => ({ version: one.version, logprobs: at(one) }))
      .filter((one) => one.logprobs.every(Number.isFinite));
    return {
      ...{ temperature, arithmetic, texts },
      places: chosen.map(({ text, index }) => [text, index]),
      logprobs: at(scored),
      ...(earlier.length > 0 && { earlier }),
    };
  }
}

/** Number of problems whose texts a canary may use. */
const problems = 8;
/** Longest text in tokens: manifests carry all texts, and every version's forward pass reads them. */
const longestText = 512;

/**
 * The texts from which a run's canaries are taken: prompts of a few training problems, each with its solution
 * where the task knows one, so that tokens inside an answer are covered. The same in every session of the run.
 *
 * @param maxPositions of the model; of longer texts the beginning is left out.
 * @returns texts of at least 2 tokens.
 */
export function canaryTexts({
  task,
  dataset,
  tokenizer,
  seed,
  maxPositions,
}: {
  readonly task: Pick<Task, 'prompt' | 'solution'>;
  readonly dataset: Pick<Dataset, 'train'>;
  readonly tokenizer: PromptTokenizer;
  readonly seed: number;
  readonly maxPositions: number;
}): Canary['texts'] {
  const random = createRandom(`${seed} canary`);
  const { train } = dataset;
  const chosen = new Set<number>();
  while (chosen.size < Math.min(problems, train.length)) chosen.add(random.int(train.length));
  return [...chosen]
    .map((index) => {
      const problem = train[index]!;
      const prompt = promptTokens(task.prompt(problem), tokenizer);
      const found = task.solution?.(problem);
      const solution = tokenizer.encode(typeof found === 'string' ? found : '');
      return Int32Array.of(...prompt, ...solution).slice(-Math.min(longestText, maxPositions));
    })
    .filter(({ length }) => length > 1);
}
