import type { Datum } from '../../shared/rl/datum.js';
import type { Example } from '../../shared/tasks/examples/example.js';
import { trainedTokens } from '../../shared/tasks/examples/example.js';
import type { ForwardBackwardResult } from '../../shared/tinker/types.js';
import { StatTable } from '../report/stat-table.js';

/** What a pass over examples showed, of the weights before any update. */
export interface PassedExamples {
  readonly examples: number;
  readonly tokens: number; // trained
  readonly promptTokens: number; // only read
  readonly negativeLogprob: number; // sum over the trained tokens, nats
}

/**
 * The examples as the backend trains on them. Position i scores token i + 1, and a trained token counts with the same
 * weight wherever it is, so that the loss of a batch is the mean over its trained tokens.
 *
 * @param weight of a trained token: 1 divided by the trained tokens of the batch.
 */
export function supervisedData(examples: readonly Example[], weight: number): Datum[] {
  return examples.map(({ tokens, isTrained }) => ({
    tokens: tokens.slice(0, -1),
    targetTokens: tokens.slice(1),
    inputs: { weights: Float32Array.from(isTrained.subarray(1), (each) => each * weight) },
  }));
}

/** The trained tokens of examples, the first of each excepted, which nothing comes before. */
export function countedTokens(examples: readonly Example[]): number {
  return examples.reduce(
    (sum, example) => sum + trainedTokens(example) - (example.isTrained[0] ?? 0),
    0,
  );
}

export function passedExamples(
  examples: readonly Example[],
  { logprobs }: Pick<ForwardBackwardResult, 'logprobs'>,
): PassedExamples {
  let negativeLogprob = 0;
  for (const [i, { isTrained }] of examples.entries()) {
    for (const [t, logprob] of logprobs[i]!.entries()) {
      if (isTrained[t + 1] === 1) negativeLogprob -= logprob;
    }
  }
  const tokens = countedTokens(examples);
  const all = examples.reduce((sum, example) => sum + example.tokens.length, 0);
  return { examples: examples.length, tokens, promptTokens: all - tokens, negativeLogprob };
}

/** The passes over the parts of a batch, as one. */
export function together(parts: readonly PassedExamples[]): PassedExamples {
  const sum = (key: keyof PassedExamples) => parts.reduce((total, part) => total + part[key], 0);
  return {
    examples: sum('examples'),
    tokens: sum('tokens'),
    promptTokens: sum('promptTokens'),
    negativeLogprob: sum('negativeLogprob'),
  };
}

/** Mean -logprob of the trained tokens, in nats. */
export function nll({ negativeLogprob, tokens }: PassedExamples): number {
  return negativeLogprob / tokens;
}

/** The numbers of a supervised step, of the weights before its update. */
interface SupervisedStep {
  readonly trained: PassedExamples;
  readonly heldOut: PassedExamples | undefined; // if they were measured before this step
  readonly epochs: number; // with this step
}

const negativeLikelihood = (split: string) => ({
  prometheus: 'rl_sft_nll',
  help: 'Mean -logprob of the tokens of examples before the newest step, nats per token.',
  by: { split },
});

export const supervisedStats = new StatTable<SupervisedStep>([
  { ...negativeLikelihood('train'), jsonl: 'sft/nll', of: ({ trained }) => nll(trained) },
  {
    ...negativeLikelihood('held_out'),
    jsonl: 'sft/held_out_nll',
    of: ({ heldOut }) => heldOut && nll(heldOut),
  },
  {
    jsonl: 'sft/epoch',
    prometheus: 'rl_sft_epoch',
    help: 'Passes through the examples so far.',
    of: ({ epochs }) => epochs,
  },
  { jsonl: 'sft/examples', of: ({ trained }) => trained.examples },
  { jsonl: 'sft/tokens', of: ({ trained }) => trained.tokens },
  { jsonl: 'sft/prompt_tokens', of: ({ trained }) => trained.promptTokens },
]);
