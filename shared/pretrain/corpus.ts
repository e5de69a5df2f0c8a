import { drawProblem, generateProblems } from '../countdown/generator.js';
import { problemKey } from '../countdown/problem.js';
import { renderPrompt, styles } from '../countdown/prompts.js';
import type { GeneratorSpec } from '../countdown/spec.js';
import type { Tokenizer } from '../model/tokenizer.js';
import { createRandom } from '../random.js';
import { promptTokens } from '../tasks/prompt.js';
import type { Example } from './language-model.js';

/**
 * An endless corpus of solved problems: prompt, witness, end of sequence. Only the answer is
 * counted. The problems that `heldOut` keeps for evaluation never occur.
 */
export function* solvedProblems(
  tokenizer: Tokenizer,
  heldOut: GeneratorSpec,
  seed: number,
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
    const text = Int32Array.of(...prompt, ...tokenizer.encode(drawn.witness), eos);
    yield {
      tokens: text.subarray(0, -1),
      targets: text.subarray(1),
      weights: Float32Array.from({ length: text.length - 1 }, (_, i) =>
        i < prompt.length - 1 ? 0 : 1,
      ),
    };
  }
}
