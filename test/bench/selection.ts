import { createRandom, type Random } from '../../shared/base/random.js';
import { mean } from '../../shared/base/statistics.js';
import { createAdapter } from '../../shared/model/lora.js';
import { Scorer } from '../../shared/model/scorer.js';
import { combinedEvidence, selectionEvidence, tilts } from '../../shared/rl/selection-evidence.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import { embeddedSetting } from './canary-policies.js';
import type { Figure } from './main.js';

const problems = 192;
const answersOfEach = 96;
const groupSize = 16;
const actors = 200; // simulated, of each kind
const mostGroups = 3_000;
/** As of the other audits: one false alarm in 10⁹ actors. */
const proof = Math.log(1e9);

/** An answer of the pool: what the test makes of it, and whether it is right. */
interface Answer {
  readonly nats: Float64Array; // for each tilt
  readonly isCorrect: boolean;
  readonly surprise: number; // Σ(-ln p - H), nats
}

/**
 * Measures how many groups it takes to find an actor that selects its answers, on the embedded model. Answers are
 * sampled once; an actor then draws from those of a problem with replacement. `until right` draws again while an
 * answer is wrong, k times in all; `likelier` sends the most probable of k.
 */
export async function benchSelection(): Promise<Figure[]> {
  const pool = await sampledPool();
  const figures: Figure[] = [];
  const surprises = pool.flat().map(({ surprise }) => surprise);
  figures.push(
    { what: 'mean of Σ(-ln p - H), an honest answer', value: mean(surprises), unit: 'nats' },
    { what: 'its deviation', value: deviation(surprises), unit: 'nats' },
    {
      what: 'solved',
      value: 100 * mean(pool.flat().map((each) => Number(each.isCorrect))),
      unit: '%',
    },
  );
  const right = surprisesAmong(pool, true);
  const wrong = surprisesAmong(pool, false);
  figures.push(
    { what: 'the mean of those that are right', value: mean(right), unit: 'nats' },
    { what: 'the mean of those that are wrong', value: mean(wrong), unit: 'nats' },
  );
  const kinds: [what: string, send: (answers: readonly Answer[], random: Random) => Answer][] = [
    ['honest', drawn],
    ['until right, k = 2', untilRight(2)],
    ['until right, k = 4', untilRight(4)],
    ['until right, k = 16', untilRight(16)],
    ['likelier, k = 2', likelier(2)],
    ['rarer, k = 2', likelier(2, -1)],
  ];
  for (const [what, send] of kinds) {
    const found = Array.from({ length: actors }, (_, i) =>
      groupsUntilFound(pool, send, createRandom(`${what} ${i}`)),
    );
    const caught = found.filter((groups) => groups < Infinity).length;
    figures.push({
      what: `${what}: found within ${mostGroups} groups`,
      value: (100 * caught) / actors,
      unit: '%',
    });
    if (caught === 0) continue;
    for (const [share, name] of [
      [0.5, 'half'],
      [0.95, '95 %'],
    ] as const) {
      const groups = found.toSorted((a, b) => a - b)[Math.ceil(share * actors) - 1]!;
      if (groups < Infinity)
        figures.push({ what: `${what}: ${name} found after`, value: groups, unit: 'groups' });
    }
  }
  return figures;
}

/** @returns for each problem its answers. */
async function sampledPool(): Promise<Answer[][]> {
  const { directory, weights, tokenizer, settings, task, dataset, decoder } =
    await embeddedSetting();
  const { temperature, maxTokens } = settings;
  const scorer = new Scorer(directory.config, weights, 1);
  const { vocabSize } = directory.config;
  const lora = { rank: 1, alpha: 1, seed: 0, attn: true, mlp: true };
  const policy = { version: 0, adapter: createAdapter(directory.config, lora) }; // changes nothing yet
  const pool: Answer[][] = [];
  const random = createRandom('selection');
  for (let p = 0; p < problems; p++) {
    const problem = dataset.train[random.int(dataset.train.length)]!;
    const prompt = promptTokens(task.prompt(problem), tokenizer);
    const stopTokenIds = tokenizer.eosTokenIds;
    const request = { prompt, count: answersOfEach, temperature, maxTokens, stopTokenIds, seed: p };
    const rollouts = await decoder.sampleGroup(request, () => policy);
    const texts = rollouts.map(({ tokens }) => Int32Array.of(...prompt, ...tokens));
    const known = await scorer.topTokens(texts, vocabSize, undefined, temperature);
    pool.push(
      rollouts.map(({ tokens, behaviorLogprobs }, r) => {
        const rows = known[r]!.logprobs;
        const positions = Array.from(behaviorLogprobs, (logprob, t) => {
          const row = prompt.length - 1 + t; // the row before a token predicts it
          return { logprob, top: rows.subarray(row * vocabSize, (row + 1) * vocabSize) };
        });
        const surprise = positions.reduce(
          (sum, { logprob, top }) => sum - logprob - entropy(top),
          0,
        );
        const { isCorrect } = task.score(problem, tokenizer.decode(tokens));
        return { nats: selectionEvidence(positions, vocabSize, 0), isCorrect, surprise };
      }),
    );
  }
  return pool;
}

function groupsUntilFound(
  pool: readonly (readonly Answer[])[],
  send: (answers: readonly Answer[], random: Random) => Answer,
  random: Random,
): number {
  const nats = new Float64Array(tilts.length);
  for (let groups = 1; groups <= mostGroups; groups++) {
    const answers = pool[random.int(pool.length)]!;
    for (let r = 0; r < groupSize; r++) {
      send(answers, random).nats.forEach((each, i) => (nats[i]! += each));
    }
    if (combinedEvidence(nats) >= proof) return groups;
  }
  return Infinity;
}

const drawn = (answers: readonly Answer[], random: Random): Answer =>
  answers[random.int(answers.length)]!;

function untilRight(k: number) {
  return (answers: readonly Answer[], random: Random): Answer => {
    let answer = drawn(answers, random);
    for (let i = 1; i < k && !answer.isCorrect; i++) answer = drawn(answers, random);
    return answer;
  };
}

function likelier(k: number, sign = 1) {
  return (answers: readonly Answer[], random: Random): Answer =>
    Array.from({ length: k }, () => drawn(answers, random)).reduce((a, b) =>
      sign * (a.surprise - b.surprise) <= 0 ? a : b,
    );
}

function surprisesAmong(pool: readonly (readonly Answer[])[], isRight: boolean): number[] {
  return pool
    .flat()
    .filter(({ isCorrect }) => isCorrect === isRight)
    .map(({ surprise }) => surprise);
}

function entropy(logprobs: Float32Array): number {
  return logprobs.reduce((sum, logprob) => sum - Math.exp(logprob) * logprob, 0);
}

function deviation(values: readonly number[]): number {
  const center = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - center) ** 2)));
}
