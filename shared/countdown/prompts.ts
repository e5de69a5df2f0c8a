import type { RunConfig } from '../wire/run-config.js';
import type { Problem } from './problem.js';

export type PromptStyle = RunConfig['promptStyle'];

/** How a style asks for an expression and where its answer stands in a completion. */
export interface Style {
  readonly render: (problem: Problem) => string;
  /** `whole`: the completion is the answer. `block`: it stands in `<answer>…</answer>`. */
  readonly answer: 'whole' | 'block';
  /** Whether the answer may end in `= 64`, the target, as models that show their work write it. */
  readonly allowsTargetTail: boolean;
  /** What the prompt itself shows of the answer's form; repeating it is not answering. */
  readonly examples: readonly string[];
  /** Where sampling may stop, in addition to the end of the sequence. */
  readonly stop: readonly string[];
}

const fewshotForm = 'inside <answer>...</answer>';
const fewshotExample = 'Example: <answer>(1+2)/3</answer>.';
const fewshotAnswer = 'A: <answer>(2*3)+7</answer>';
const thinkForm = 'in <answer> </answer> tags';
const thinkExample = 'for example <answer> (1 + 2) / 3 </answer>';

export const styles: Readonly<Record<PromptStyle, Style>> = {
  /** For the embedded model, which reads characters: `3 7 21=64:`, answered by `(21-7)…`. */
  compact: {
    render: ({ numbers, target }) => `${numbers.join(' ')}=${target}:`,
    answer: 'whole',
    allowsTargetTail: false,
    examples: [],
    stop: [],
  },

  /** Source: TuFT's Countdown guide: a solved question, then ours, as plain text ending in `A:`. */
  fewshot: {
    render: ({ numbers, target }) =>
      `${question([2, 3, 7], 13)}\n${fewshotAnswer}\n\n${question(numbers, target)}\nA:`,
    answer: 'block',
    allowsTargetTail: false,
    examples: [fewshotForm, fewshotExample, fewshotAnswer],
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
      `And return the final answer ${thinkForm}, ${thinkExample}.<|im_end|>\n<|im_start|>assistant\nLet me solve this step by step.\n<think>`,
    answer: 'block',
    allowsTargetTail: true,
    examples: [thinkForm, thinkExample],
    stop: [],
  },
};

/** The text that the policy is asked to continue. */
export function renderPrompt(style: PromptStyle, problem: Problem): string {
  return styles[style].render(problem);
}

function question(numbers: readonly number[], target: number): string {
  return (
    `Q: Using the numbers ${numbers.join(', ')}, reach the target number ${target}. ` +
    'You may use +, -, *, / and parentheses, and each number can only be used once. ' +
    `Put ONLY the final expression ${fewshotForm}. ${fewshotExample}`
  );
}
