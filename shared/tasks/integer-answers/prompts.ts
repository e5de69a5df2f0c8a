import type { Styles } from '../prompt-template.js';
import type { PromptTemplate } from '../prompt-template.js';

const tags = { open: '<answer>', close: '</answer>' };

/** The built-in prompt styles of integer answers; a user's template file has the same form in JSON. */
export const styles = {
  /** The question alone; the completion is the answer. */
  compact: {
    en: { name: 'compact', text: '{{question}}', opening: '', answer: 'whole', stop: [] },
  },
  /** For base models: a solved question, then ours. */
  fewshot: {
    en: {
      name: 'fewshot',
      text:
        'Q: A box holds 6 eggs. How many eggs are in 4 boxes, if 3 of the eggs are taken out?\n' +
        'A: 4 boxes hold 4*6 = 24 eggs. Without 3 they are 24-3 = 21. <answer>21</answer>\n\n' +
        'Q: {{question}}\nA:',
      opening: '',
      answer: tags,
      stop: ['</answer>'],
    },
    zh: {
      name: 'fewshot',
      text:
        '问：一盒有 6 个鸡蛋。4 盒鸡蛋拿走 3 个，还剩多少个？\n' +
        '答：4 盒有 4*6 = 24 个，拿走 3 个，还剩 24-3 = 21 个。<answer>21</answer>\n\n' +
        '问：{{question}}\n答：',
      opening: '',
      answer: tags,
      stop: ['</answer>'],
    },
  },
  /** For reasoning chat models. */
  think: {
    en: {
      name: 'think',
      chat: [
        {
          role: 'user',
          content:
            '{{question}}\n\nReason step by step in <think> </think> tags. Then write the answer, ' +
            'an integer without units, in <answer> </answer> tags, for example <answer>21</answer>.',
        },
      ],
      opening: '<think>',
      answer: tags,
      stop: [],
    },
    zh: {
      name: 'think',
      chat: [
        {
          role: 'user',
          content:
            '{{question}}\n\n请先在 <think> </think> 标签中逐步推理，再在 <answer> </answer> 标签中' +
            '写出答案：一个不带单位的整数，例如 <answer>21</answer>。',
        },
      ],
      opening: '<think>',
      answer: tags,
      stop: [],
    },
  },
} satisfies Styles<PromptTemplate>;
