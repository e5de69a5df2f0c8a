import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { embeddedDataset, generateProblems } from '../../shared/tasks/countdown/generator.js';
import type { Problem } from '../../shared/tasks/countdown/problem.js';
import { scoreAnswer } from '../../shared/tasks/countdown/score.js';
import { forms, zeroOrOne } from '../support/countdown-task.js';
import { hostileCorpus } from '../support/hostile-corpus.js';
import type { Figure } from './main.js';
import { obviousReward } from './obvious-checker.js';

const reward = { ...zeroOrOne, formatScore: 0.1, shaping: 'continuous' } as const;

interface Answered {
  readonly problem: Problem;
  readonly completion: string;
}

/**
 * Measures how fast one core scores typical answers, compared with the obvious checker; the time of
 * the slowest hostile completion; and the memory left by ten million scores.
 */
export function benchReward(): Figure[] {
  const compact = typicalAnswers();
  const thinking = compact.map(withThoughts);
  const score =
    (style: keyof typeof forms) =>
    ({ problem, completion }: Answered) =>
      scoreAnswer(forms[style], problem, completion, reward);
  const thoughts = Math.round(thinking[0]!.completion.length / 100) * 100;
  return [
    ...slowest(),
    ...speed('compact answers scored', compact, score('compact')),
    ...speed(`answers behind ${thoughts} characters of thought`, thinking, score('think')),
    ...speed('compact answers, by RegExp and Function', compact, obviousReward),
    ...memory(compact, score('compact')),
  ];
}

const rounds = 9;

/**
 * A third is right, a third has another value, a third a wrong number, as during training. No two
 * are equal, since an engine may cache compiled expressions.
 */
function typicalAnswers(): Answered[] {
  const trainSize = (rounds + 1) * 6_000;
  return generateProblems({ ...embeddedDataset, maxNumber: 99, trainSize }).train.map(
    ({ problem, witness }, i) => ({
      problem,
      completion: [witness, problem.numbers.join('+'), `${witness}+1`][i % 3]!,
    }),
  );
}

function withThoughts({ problem, completion }: Answered): Answered {
  const { numbers, target } = problem;
  const attempts = Array.from({ length: 12 }, (_, i) => {
    const [a, b, c] = [numbers[i % 3]!, numbers[(i + 1) % 3]!, numbers[(i + 2) % 3]!];
    return `- (${a} + ${b}) * ${c} = ${(a + b) * c}, which is not ${target}. Let me try another way.\n`;
  });
  const answer = `<answer> ${completion} = ${target} </answer>`;
  return { problem, completion: `${attempts.join('')}</think>\n${answer}` };
}

/** Measures elapsed time and processor time, which other programs do not affect. */
function speed(what: string, answers: Answered[], score: (one: Answered) => unknown): Figure[] {
  const count = Math.floor(answers.length / (rounds + 1));
  const byClock: number[] = [];
  const byProcessor: number[] = [];
  for (let round = 0; round <= rounds; round++) {
    const part = answers.slice(round * count, (round + 1) * count);
    const [from, cpu] = [performance.now(), process.cpuUsage()];
    for (const one of part) score(one);
    const { user, system } = process.cpuUsage(cpu);
    if (round === 0) continue; // warms up the compiler
    byClock.push((performance.now() - from) / 1e3);
    byProcessor.push((user + system) / 1e6);
  }
  return [
    { what, value: count / median(byClock), unit: 'scores/s' },
    { what: `${what}, processor`, value: count / median(byProcessor), unit: 'scores/s' },
  ];
}

/**
 * The slowest hostile completion in processor time: on the first call, when the code is cold,
 * and then by the median of many tries, since the worst try includes garbage collection.
 */
function slowest(): Figure[] {
  const corpus = hostileCorpus();
  const timed = ({ style, problem, completion }: (typeof corpus)[number]) => {
    const from = process.cpuUsage();
    scoreAnswer(forms[style], problem, completion, reward);
    const { user, system } = process.cpuUsage(from);
    return (user + system) / 1e3;
  };
  const first = corpus.map(timed);
  const tries = corpus.map((entry) => Array.from({ length: 201 }, () => timed(entry)));
  const all = tries.flat().sort((a, b) => a - b);
  const of = `slowest of ${corpus.length} hostile completions`;
  const ms = (what: string, value: number): Figure => ({ what, value, unit: 'ms' });
  return [
    ms(of, Math.max(...tries.map(median))),
    ms(`${of}, at first sight`, Math.max(...first)),
    ms(`${of}, 999 in 1,000 tries`, all[Math.floor(all.length * 0.999)]!),
    ms(`${of}, worst of ${all.length} tries`, all.at(-1)!),
  ];
}

const million = 1_000_000;

function memory(answers: Answered[], score: (one: Answered) => unknown): Figure[] {
  return Array.from({ length: 10 }, (_, i) => {
    for (let n = 0; n < million; n++) score(answers[n % answers.length]!);
    collectGarbage();
    const { heapUsed, rss } = process.memoryUsage();
    const after = `after ${i + 1} million scores`;
    return [
      { what: `heap ${after}`, value: heapUsed / 2 ** 20, unit: 'MiB' },
      { what: `resident ${after}`, value: rss / 2 ** 20, unit: 'MiB' },
    ];
  }).flat();
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
