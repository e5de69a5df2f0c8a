import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { problemOf } from '../../shared/tasks/countdown/problem.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { answerForm, scoreAnswer, zeroOrOne } from '../../shared/tasks/countdown/score.js';
import { atLeast, atMost, runPython, type SuiteContext } from './suite.js';

interface Row {
  readonly numbers: readonly number[];
  readonly target: number;
  readonly answers: readonly (readonly [text: string, isRight: boolean])[];
}

const form = answerForm(styles.compact.en);

/**
 * Countdown of reasoning-gym 0.1.25: its solutions must be right here too, and its verdict on any answer ours,
 * but for the known differences. reasoning-gym parses Python, so it knows more operators than the four,
 * and compares floating-point values with numpy's `isclose`.
 */
export async function testReasoningGym(context: SuiteContext): Promise<void> {
  const { folder, isShort, report, note } = context;
  const file = join(folder, 'problems.jsonl');
  const count = isShort ? 1_000 : 100_000;
  await runPython(context, 'reasoning-gym/problems.py', [String(count), file]);

  let [problems, wrongSolutions, answers, right] = [0, 0, 0, 0];
  const differences = new Map<string, number>();
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
      const why = difference(text, row.target, isRight, score);
      if (why === undefined) note(`${line}: ${text} is ${score.reason} here`);
      differences.set(why ?? 'unexplained', (differences.get(why ?? 'unexplained') ?? 0) + 1);
    }
  }
  note(`differences: ${JSON.stringify(Object.fromEntries(differences))}`);
  report(atLeast('problems of reasoning-gym', problems, 0.99 * count));
  report(atMost('of their solutions wrong here', wrongSolutions, 0));
  report(atLeast('answers that reasoning-gym calls right', right, 0.99 * count));
  report(atLeast('answers judged by both', answers, 2 * 0.99 * count));
  report(
    atMost('verdicts that differ without a known reason', differences.get('unexplained') ?? 0, 0),
  );
}

/** The known reason for which the verdicts differ, if there is one. */
function difference(
  text: string,
  target: number,
  isRight: boolean,
  { reason, value }: ReturnType<typeof scoreAnswer>,
): string | undefined {
  if (!isRight) {
    return /[×÷]/.test(text) ? 'their parser does not know × and ÷' : undefined;
  }
  if (/\*\*|!/.test(text)) return 'they take powers and factorials for answers';
  if (reason !== 'wrong_value' || value === undefined) return undefined;
  const [numerator, denominator = 1] = value.split('/').map(Number);
  const gap = Math.abs(numerator! / denominator - target);
  return gap <= 1e-6 + 1e-5 * target ? 'they allow an error of 1e-5 of the target' : undefined;
}
