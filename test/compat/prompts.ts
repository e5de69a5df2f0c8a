import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import { lengthAtStop, StopStringMatcher } from '../../shared/model/stop-strings.js';
import { loadTokenizer, type ChatMessage, type Tokenizer } from '../../shared/model/tokenizer.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { countdown } from '../../shared/tasks/countdown/task.js';
import { CountdownPrompt } from '../../shared/tasks/countdown/spec.js';
import { answerExample, chatExample } from '../../shared/tasks/examples/example.js';
import { promptText, promptTokens } from '../../shared/tasks/prompt.js';
import { createJudge } from '../../reward-service/judge.js';
import { countdownSpec } from '../support/countdown-task.js';
import { smolLm2 } from './smollm2.js';
import { runPython, type SuiteContext } from './suite.js';

const messages: readonly ChatMessage[] = [
  { role: 'user', content: 'What is the capital of France?' },
  { role: 'assistant', content: 'The capital of France is Paris.' },
  { role: 'user', content: '用数字 3、17 和 21 得到 72。' },
  { role: 'assistant', content: '<answer>17*3+21</answer>\n' },
];

/** What a model may write after the end of its answer. */
const tails = ['', '\n', ' and', '</answer>', '。好', ')', '\n\nQ: Using', '>>', '</', '🙂'];

/**
 * The prompts of every style and language, a conversation and answers with the tokenizer and the chat template of
 * SmolLM2-135M-Instruct: as transformers has them, and with ends that span tokens.
 */
export async function testPrompts(context: SuiteContext): Promise<void> {
  const { folder, report } = context;
  const model = await checkModelDirectory(await smolLm2(context));
  const tokenizer = await loadTokenizer(model);
  const { vocabSize } = model.config;

  const prompts: object[] = [];
  for (const [style, languages] of Object.entries(styles)) {
    for (const [language, template] of Object.entries(languages)) {
      const prompt = CountdownPrompt.parse(template);
      const spec = countdownSpec({ prompt });
      const task = countdown.open(spec);
      const dataset = await task.load();
      const problem = dataset.train[0]!;
      const asked = task.prompt(problem);
      prompts.push({
        ...{ style, language, text: promptText(asked, tokenizer) },
        tokens: [...promptTokens(asked, tokenizer)],
        ...('text' in asked
          ? { plain: asked.text, chat: null, opening: '' }
          : { plain: '', chat: asked.chat, opening: asked.opening }),
      });
      const run = { task: spec, groupSize: 2, sampling: { temperature: 1, maxTokens: 400 } };
      const judge = createJudge(run, dataset, tokenizer, vocabSize);
      const answer = task.solution!(problem) as string;
      const { tokens } = answerExample(asked, answer, tokenizer, task.stop);
      const own = tokens.subarray(promptTokens(asked, tokenizer).length);
      const end = own.at(-1) === tokenizer.eosTokenIds[0] ? -1 : undefined;
      const { isCorrect } = judge.task().score(problem, tokenizer.decode(own.slice(0, end)));
      const check = `${style} in ${language}: the solver's answer, encoded and decoded, is right`;
      report({ check, value: String(isCorrect), bound: 'true', passed: isCorrect });
    }
  }
  for (const tail of tails) {
    const cut = cutAtStop(tokenizer, ` 好的 <answer>(3+17)*21</answer>${tail}`);
    const check = `an answer before ${JSON.stringify(tail)} ends with the token that completes it`;
    report({
      check,
      value: cut,
      bound: 'once, in both searches',
      passed: cut === 'once, in both searches',
    });
  }
  const { tokens, isTrained } = chatExample(messages, tokenizer);
  const conversation = { messages, tokens: [...tokens], isTrained: [...isTrained] };
  await writeFile(join(folder, 'ours.json'), JSON.stringify({ prompts, conversation }));
  await runPython(context, 'prompts/compare.py', [], { HF_HUB_OFFLINE: '1' });
}

/** Whether the search in the finished text and the one token by token find the same first token that completes the stop. */
function cutAtStop({ encode, decode }: Tokenizer, text: string): string {
  const stops = ['</answer>'];
  const tokens = encode(text);
  const length = lengthAtStop(tokens, decode, stops);
  const matcher = new StopStringMatcher(decode, stops);
  const first = tokens.findIndex((_, i) => matcher.isStopped([...tokens.subarray(0, i + 1)]));
  if (length === undefined || first + 1 !== length)
    return `after ${length ?? 0} or ${first + 1} tokens`;
  const before = decode(tokens.subarray(0, length - 1));
  return before.includes('</answer>') ? 'late' : 'once, in both searches';
}
