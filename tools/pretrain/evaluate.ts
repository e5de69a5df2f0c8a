import { answerForm, scoreAnswer, zeroOrOne } from '../../shared/tasks/countdown/score.js';
import { generateProblems } from '../../shared/tasks/countdown/generator.js';
import { renderPrompt, styles } from '../../shared/tasks/countdown/prompts.js';
import type { GeneratorSpec } from '../../shared/tasks/countdown/task.js';
import { Decoder } from '../../shared/model/decoder.js';
import { noAdapter, type Adapter } from '../../shared/model/lora.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { promptTokens } from '../../shared/tasks/prompt.js';

/** Shares of held-out problems, 0 to 1. */
export interface SolveRates {
  readonly sampled: number; // pass@1 at temperature 1
  readonly any: number; // pass@samples
  readonly greedy: number;
}

/** How many of the first held-out problems a policy solves, without any service running. */
export async function solveRates(
  directory: ModelDirectory,
  dataset: GeneratorSpec,
  { problems, samples, threads }: { problems: number; samples: number; threads: number },
  adapter: Adapter = noAdapter,
): Promise<SolveRates> {
  const tokenizer = await loadTokenizer(directory);
  const decoder = await Decoder.load(directory, { threads });
  const style = styles.compact.en;
  const form = answerForm(style);
  let [sampled, any, greedy] = [0, 0, 0];
  for (const [seed, { problem }] of generateProblems({ ...dataset, trainSize: 1 })
    .slice(0, problems)
    .entries()) {
    const correct = async (count: number, temperature: number): Promise<number> => {
      const rollouts = await decoder.sampleGroup(
        {
          prompt: promptTokens(renderPrompt(style, problem), tokenizer),
          count,
          temperature,
          maxTokens: 24,
          stopTokenIds: tokenizer.eosTokenIds,
          seed,
        },
        () => ({ version: 0, adapter }),
      );
      return rollouts.filter(
        ({ tokens }) => scoreAnswer(form, problem, tokenizer.decode(tokens), zeroOrOne).isCorrect,
      ).length;
    };
    const solved = await correct(samples, 1);
    sampled += solved / samples;
    any += solved > 0 ? 1 : 0;
    greedy += await correct(1, 0);
  }
  return { sampled: sampled / problems, any: any / problems, greedy: greedy / problems };
}
