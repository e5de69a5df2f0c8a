import { createRandom } from '../../shared/base/random.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { Canary } from '../../shared/wire/canary.js';
import { promptTokens, type PromptTokenizer } from '../../shared/tasks/prompt.js';
import type { Task } from '../../shared/tasks/task.js';

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
