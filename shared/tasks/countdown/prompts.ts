import type { Prompt } from '../prompt.js';
import { fillTemplate, templateReader, type Styles } from '../prompt-template.js';
import { problemKey, type Problem } from './problem.js';
import type { CountdownPrompt } from './spec.js';

/** The built-in prompt styles of Countdown; a user's template file has the same form in JSON. */
export const styles = {
  /** For the embedded model, which reads characters: `3 7 21=64:`, answered by `(21-7)…`. */
  compact: {
    en: {
      name: 'compact',
      text: '{{numbers_spaced}}={{target}}:',
      opening: '',
      answer: 'whole',
      stop: [],
      allowsTargetTail: false,
    },
  },
  /** Source: TuFT's Countdown guide: a solved question, then ours, as plain text ending in `A:`. */
  fewshot: {
    en: {
      name: 'fewshot',
      text: `${question('2, 3, 7', '13')}\nA: <answer>(2*3)+7</answer>\n\n${question('{{numbers}}', '{{target}}')}\nA:`,
      opening: '',
      answer: { open: '<answer>', close: '</answer>' },
      stop: ['</answer>'],
      allowsTargetTail: false,
    },
    zh: {
      name: 'fewshot',
      text: `${questionInChinese('2, 3, 7', '13')}\n答：<answer>(2*3)+7</answer>\n\n${questionInChinese('{{numbers}}', '{{target}}')}\n答：`,
      opening: '',
      answer: { open: '<answer>', close: '</answer>' },
      stop: ['</answer>'],
      allowsTargetTail: false,
    },
  },
  /** Source: the single-file GRPO project's prompt: a chat whose assistant has begun to think. */
  think: {
    en: {
      name: 'think',
      chat: [
        {
          role: 'system',
          content:
            'You are a helpful assistant. You first thinks about the reasoning process ' +
            'in the mind and then provides the user with the answer.',
        },
        {
          role: 'user',
          content:
            ' Using the numbers [{{numbers}}], create an equation that equals {{target}}. ' +
            'You can use basic arithmetic operations (+, -, *, /) and each number can only be used once. ' +
            'Show your work in <think> </think> tags. ' +
            'And return the final answer in <answer> </answer> tags, for example <answer> (1 + 2) / 3 </answer>.',
        },
      ],
      opening: 'Let me solve this step by step.\n<think>',
      answer: { open: '<answer>', close: '</answer>' },
      stop: [],
      allowsTargetTail: true,
    },
    zh: {
      name: 'think',
      chat: [
        {
          role: 'system',
          content: '你是一个乐于助人的助手。你先在心里思考推理过程，然后把答案告诉用户。',
        },
        {
          role: 'user',
          content:
            '使用数字 [{{numbers}}]，写出一个结果等于 {{target}} 的算式。' +
            '可以使用基本的算术运算（+、-、*、/），每个数字只能使用一次。' +
            '请在 <think> </think> 标签中写出思考过程，' +
            '并在 <answer> </answer> 标签中给出最终答案，例如 <answer> (1 + 2) / 3 </answer>。',
        },
      ],
      opening: '让我一步一步地解决这个问题。\n<think>',
      answer: { open: '<answer>', close: '</answer>' },
      stop: [],
      allowsTargetTail: true,
    },
  },
} satisfies Styles<CountdownPrompt>;

/** The prompt for a problem, which the policy continues. */
export function renderPrompt(
  template: Pick<CountdownPrompt, 'text' | 'chat' | 'opening'>,
  { numbers, target }: Problem,
): Prompt {
  return fillTemplate(template, {
    numbers: numbers.join(', '),
    numbers_spaced: numbers.join(' '),
    target: String(target),
  });
}

/** Reads the question of a prompt in this form, as `problemKey` names it; undefined in another. */
export function questionReader(
  template: Pick<CountdownPrompt, 'text' | 'chat' | 'opening'>,
): (text: string) => string | undefined {
  const numbers = '\\d+(?:[, ]+\\d+)*';
  const read = templateReader(template, { numbers, numbers_spaced: numbers, target: '-?\\d+' });
  return (text) => {
    const parts = read(text);
    const [shown, target] = [parts?.['numbers'] ?? parts?.['numbers_spaced'], parts?.['target']];
    if (shown === undefined || target === undefined) return undefined;
    return problemKey({ numbers: shown.split(/[, ]+/).map(Number), target: Number(target) });
  };
}

function question(numbers: string, target: string): string {
  return (
    `Q: Using the numbers ${numbers}, reach the target number ${target}. ` +
    'You may use +, -, *, / and parentheses, and each number can only be used once. ' +
    'Put ONLY the final expression inside <answer>...</answer>. Example: <answer>(1+2)/3</answer>.'
  );
}

function questionInChinese(numbers: string, target: string): string {
  return (
    `问：使用数字 ${numbers}，得到目标数 ${target}。` +
    '可以使用 +、-、*、/ 和括号，每个数字只能使用一次。' +
    '只把最终的算式写在 <answer>...</answer> 中。例如：<answer>(1+2)/3</answer>。'
  );
}
