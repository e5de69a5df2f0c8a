import {
  drawExpression,
  drawProblem,
  generateProblems,
} from '../../shared/tasks/countdown/generator.js';
import { problemKey } from '../../shared/tasks/countdown/problem.js';
import { renderPrompt, styles } from '../../shared/tasks/countdown/prompts.js';
import type { GeneratorSpec } from '../../shared/tasks/countdown/task.js';
import type { Tokenizer } from '../../shared/model/tokenizer.js';
import { createRandom } from '../../shared/base/random.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import type { Example } from './language-model.js';

export interface CorpusOptions {
  /** The ranges of the problems; the problems that it reserves for evaluation never occur. */
  readonly heldOut: GeneratorSpec;
  /** Share of answers, 0 to 1, that use the numbers at random instead of reaching the target. */
  readonly mistakes: number;
  readonly seed: number;
}

/**
 * An endless corpus of answered problems: prompt, answer, end of sequence. Only the answer is counted.
 *
 * A model that also imitates mistakes can do more than it shows, like one that has read the web: it
 * learns arithmetic from the right answers and carelessness from the others.
 */
export function* answeredProblems(
  tokenizer: Tokenizer,
  { heldOut, mistakes, seed }: CorpusOptions,
): Generator<Example, never> {
  const kept = new Set(
    generateProblems({ ...heldOut, trainSize: 1 })
      .slice(0, heldOut.testSize)
      .map(({ problem }) => problemKey(problem)),
  );
  const random = createRandom(`corpus ${seed}`);
  const eos = tokenizer.eosTokenIds[0]!;
  for (;;) {
    const drawn = drawProblem(random, heldOut);
    if (drawn === undefined || kept.has(problemKey(drawn.problem))) continue;
    const prompt = promptTokens(renderPrompt(styles.compact.en, drawn.problem), tokenizer);
    const isMistake = random.next() < mistakes;
    const answer = isMistake ? drawExpression(random, drawn.problem.numbers) : drawn.witness;
    const text = Int32Array.of(...prompt, ...tokenizer.encode(answer), eos);
    yield {
      tokens: text.subarray(0, -1),
      targets: text.subarray(1),
      weights: Float32Array.from({ length: text.length - 1 }, (_, i) =>
        i < prompt.length - 1 ? 0 : 1,
      ),
    };
  }
}
