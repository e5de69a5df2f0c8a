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
  /** The ranges that problems are drawn from; those that it keeps for evaluation never occur. */
  readonly heldOut: GeneratorSpec;
  /** Share of answers, 0 to 1, that use the numbers anyhow instead of reaching the target. */
  readonly mistakes: number;
  readonly seed: number;
}

/**
 * An endless corpus of answered problems: prompt, answer, end of sequence. Only the answer is counted.
 *
 * A model that imitates mistakes at last knows more than it does, as one that has read the web: its
 * arithmetic is from the answers that are right, its carelessness from the others.
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
