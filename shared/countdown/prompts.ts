import type { RunConfig } from '../wire/run-config.js';
import { answerBlocks } from './answer.js';
import { problemOf, type Problem } from './problem.js';

export type PromptStyle = RunConfig['promptStyle'];

/** How a style asks for an expression and where its answer stands in a completion. */
export interface Style {
  readonly render: (problem: Problem) => string;
  /** `whole`: the completion is the answer. `block`: it stands in `<answer>…</answer>`. */
  readonly answer: 'whole' | 'block';
  /** Whether the answer may end in `= 64`, the target, as models that show their work write it. */
  readonly allowsTargetTail: boolean;
  /** Answers that the prompt itself shows, with the words before them; repeating is not answering. */
  readonly examples: readonly string[];
  /** Where sampling may stop, in addition to the end of the sequence. */
  readonly stop: readonly string[];
}

const withoutExamples: Readonly<Record<PromptStyle, Omit<Style, 'examples'>>> = {
  /** For the embedded model, which reads characters: `3 7 21=64:`, answered by `(21-7)…`. */
  compact: {
    render: ({ numbers, target }) => `${numbers.join(' ')}=${target}:`,
    answer: 'whole',
    allowsTargetTail: false,
    stop: [],
  },

  /** Source: TuFT's Countdown guide: a solved question, then ours, as plain text ending in `A:`. */
  fewshot: {
    render: ({ numbers, target }) =>
      `${question([2, 3, 7], 13)}\nA: <answer>(2*3)+7</answer>\n\n${question(numbers, target)}\nA:`,
    answer: 'block',
    allowsTargetTail: false,
    stop: ['</answer>'],
  },

  /** Source: the single-file GRPO project's prompt, in the chat form of the Qwen models. */
  think: {
    render: ({ numbers, target }) =>
      '<|im_start|>system\nYou are a helpful assistant. You first thinks about the reasoning process ' +
      'in the mind and then provides the user with the answer.<|im_end|>\n<|im_start|>user\n ' +
      `Using the numbers [${numbers.join(', ')}], create an equation that equals ${target}. ` +
      'You can use basic arithmetic operations (+, -, *, /) and each number can only be used once. ' +
      'Show your work in <think> </think> tags. ' +
      'And return the final answer in <answer> </answer> tags, ' +
      'for example <answer> (1 + 2) / 3 </answer>.<|im_end|>\n<|im_start|>assistant\nLet me solve this step by step.\n<think>',
    answer: 'block',
    allowsTargetTail: true,
    stop: [],
  },
};

export const styles: Readonly<Record<PromptStyle, Style>> = {
  compact: withItsExamples(withoutExamples.compact),
  fewshot: withItsExamples(withoutExamples.fewshot),
  think: withItsExamples(withoutExamples.think),
};

/** The text that the policy is asked to continue. */
export function renderPrompt(style: PromptStyle, problem: Problem): string {
  return styles[style].render(problem);
}

function question(numbers: readonly number[], target: number): string {
  return (
    `Q: Using the numbers ${numbers.join(', ')}, reach the target number ${target}. ` +
    'You may use +, -, *, / and parentheses, and each number can only be used once. ' +
    'Put ONLY the final expression inside <answer>...</answer>. Example: <answer>(1+2)/3</answer>.'
  );
}

/** What a prompt shows is the same whatever the problem, so that any one tells. */
function withItsExamples(style: Omit<Style, 'examples'>): Style {
  return { ...style, examples: answerBlocks(style.render(problemOf([1, 1], 2))) };
}
