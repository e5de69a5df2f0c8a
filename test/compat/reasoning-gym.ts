import { createReadStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { generateProblems } from '../../shared/tasks/countdown/generator.js';
import { problemOf } from '../../shared/tasks/countdown/problem.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { answerForm, scoreAnswer } from '../../shared/tasks/countdown/score.js';
import { atLeast, atMost, runPython, type SuiteContext } from './suite.js';
import { zeroOrOne } from '../support/countdown-task.js';

interface Row {
  readonly numbers: readonly number[];
  readonly target: number;
  readonly answers: readonly (readonly [text: string, isRight: boolean])[];
}

const form = answerForm(styles.compact.en);

/**
 * Countdown of reasoning-gym 0.1.25: its solutions must be right here and ours there, and its verdict on any
 * answer ours, except on powers and factorials.
 */
export async function testReasoningGym(context: SuiteContext): Promise<void> {
  const { folder, isShort, report, note } = context;
  const file = join(folder, 'problems.jsonl');
  const count = isShort ? 1_000 : 100_000;
  const ours = join(folder, 'ours.jsonl');
  const spec = { numbers: [3, 4, 5, 6], maxNumber: 99, maxTarget: 999, seed: 0 };
  const { test, train } = generateProblems({
    kind: 'generator',
    ...spec,
    testSize: 1,
    trainSize: count - 1,
  });
  const lines = [...test, ...train].map(({ problem: { numbers, target }, witness }) =>
    JSON.stringify({ numbers, target, solution: witness }),
  );
  await writeFile(ours, lines.join('\n'));
  await runPython(context, 'reasoning-gym/problems.py', [String(count), file, ours]);

  let [problems, wrongSolutions, answers, right, otherOperators, unexplained] = [0, 0, 0, 0, 0, 0];
  for await (const line of createInterface(createReadStream(file))) {
    const row = JSON.parse(line) as Row;
    const problem = problemOf(row.numbers, row.target);
    problems += 1;
    for (const [i, [text, isRight]] of row.answers.entries()) {
      const score = scoreAnswer(form, problem, text, zeroOrOne);
      answers += 1;
      if (isRight) right += 1;
      if (i === 0 && !score.isCorrect) wrongSolutions += 1;
      if (score.isCorrect === isRight) continue;
      // Their parser reads Python and sympy, which have these operators; the game has four.
      if (isRight && /\*\*|!/.test(text)) otherOperators += 1;
      else {
        unexplained += 1;
        note(`${line}: ${text} is ${score.reason} here`);
      }
    }
  }
  note(`${otherOperators} answers with a power or a factorial are right there and wrong here`);
  report(atLeast('problems, half of them ours', problems, 1.99 * count));
  report(atMost('solutions that are wrong here', wrongSolutions, 0));
  report(atLeast('answers that are right there', right, 1.99 * count));
  report(atLeast('answers judged by both', answers, 2.98 * count));
  report(atMost('verdicts that differ otherwise', unexplained, 0));
}
