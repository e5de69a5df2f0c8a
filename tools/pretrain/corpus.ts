import {
  areHeldOut,
  drawProblem,
  type Difficulty,
} from '../../shared/tasks/countdown/generator.js';
import { renderPrompt, styles } from '../../shared/tasks/countdown/prompts.js';
import type { Tokenizer } from '../../shared/model/tokenizer.js';
import { createRandom } from '../../shared/base/random.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import type { Example } from './language-model.js';

/**
 * The endless batches of a pre-training. Those of one pool are cut by length, so that little is padded, and
 * come in random order.
 *
 * @param size examples of a batch.
 * @param from batches to skip, which an interrupted training has seen.
 */
export function* batches(
  tokenizer: Tokenizer,
  difficulty: Difficulty,
  { size, seed, from }: { size: number; seed: number; from: number },
): Generator<Example[], never> {
  for (let pool = Math.floor(from / pooledBatches); ; pool++) {
    const corpus = solvedProblems(tokenizer, difficulty, `${seed} ${pool}`);
    const examples = Array.from({ length: pooledBatches * size }, () => corpus.next().value).sort(
      (a, b) => a.tokens.length - b.tokens.length,
    );
    const batches = createRandom(`batches ${seed} ${pool}`)
      .shuffle(Array.from({ length: pooledBatches }, (_, i) => i * size))
      .map((start) => examples.slice(start, start + size));
    yield* batches.slice(Math.max(0, from - pool * pooledBatches));
  }
}

const pooledBatches = 16;

/**
 * An endless corpus of solved problems: prompt, answer, end of sequence. Only the answer is counted. No
 * problem has a combination of numbers that generated datasets hold out.
 */
export function* solvedProblems(
  tokenizer: Tokenizer,
  difficulty: Difficulty,
  seed: string,
): Generator<Example, never> {
  const random = createRandom(`corpus ${seed}`);
  const eos = tokenizer.eosTokenIds[0]!;
  for (;;) {
    const drawn = drawProblem(random, difficulty);
    if (drawn === undefined || areHeldOut(drawn.problem.numbers)) continue;
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
