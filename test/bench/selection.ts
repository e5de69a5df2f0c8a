import { exactDistance } from '../../learner/audit/selection-audit.js';
import { createRandom, tokenDraws, type Random } from '../../shared/base/random.js';
import { mean } from '../../shared/base/statistics.js';
import { createAdapter } from '../../shared/model/lora.js';
import { Scorer } from '../../shared/model/scorer.js';
import type { SampledRollout } from '../../shared/model/rollout-draft.js';
import {
  addEvidence,
  distanceFromDraw,
  selectionEvidence,
  solveBets,
  solveRateEvidence,
  tilts,
} from '../../shared/rl/selection-evidence.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import { embeddedSetting, trainVersions } from './canary-policies.js';
import type { Figure } from './main.js';

const problems = 192;
const answersOfEach = 96;
const groupSize = 16;
const actors = 200; // simulated, of each kind
const mostGroups = 3_000;
/** As of the other audits: one false alarm in 10⁹ actors. */
const proof = Math.log(1e9);

/** Steps that train the versions of the replay, and groups of each. */
const steps = 12;
const groupsOfEach = 16;

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
  const figures = await replayFigures();
  const pool = await sampledPool();
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
  for (const [what, send] of kinds) {
    figures.push(
      ...timesToFind(`${what}, by how probable its answers are`, (random) =>
        groupsUntilImprobable(pool, send, random),
      ),
      ...timesToFind(`${what}, by what it solves`, (random) =>
        groupsUntilUnequal(pool, send, random),
      ),
    );
  }
  return figures;
}

type Send = (answers: readonly Answer[], random: Random) => Answer;

const kinds: readonly [what: string, send: Send][] = [
  ['honest', drawn],
  ['once more for one wrong answer in ten', onceMore(0.1)],
  ['until right, k = 2', untilRight(2)],
  ['until right, k = 4', untilRight(4)],
  ['until right, k = 16', untilRight(16)],
  ['likelier, k = 2', likelier(2)],
  ['rarer, k = 2', likelier(2, -1)],
];

/** How many simulated actors are found within `mostGroups`, and after how many groups. */
function timesToFind(what: string, groupsOf: (random: Random) => number): Figure[] {
  const found = Array.from({ length: actors }, (_, i) => groupsOf(createRandom(`${what} ${i}`)));
  found.sort((a, b) => a - b);
  const share = (100 * found.filter((groups) => groups < Infinity).length) / actors;
  const after = [0.5, 0.95].flatMap((part): Figure[] => {
    const value = found[Math.ceil(part * actors) - 1]!;
    return value === Infinity ? [] : [{ what: `… ${100 * part} % after`, value, unit: 'groups' }];
  });
  return [{ what, value: share, unit: `% within ${mostGroups} groups` }, ...after];
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
    const inputs = texts.map((text) => text.slice(0, -1));
    const targets = texts.map((text) => text.slice(1));
    const known = await scorer.scores(inputs, targets, vocabSize, undefined, temperature);
    pool.push(
      rollouts.map(({ tokens, behaviorLogprobs }, r) => {
        const rows = known[r]!.top.logprobs;
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

/** Examined groups until the evidence that answers are not as probable as draws is a proof. */
function groupsUntilImprobable(pool: Pool, send: Send, random: Random): number {
  const nats = new Float64Array(tilts.length);
  for (let groups = 1; groups <= mostGroups; groups++) {
    const more = new Float64Array(tilts.length);
    for (const { nats: each } of groupFrom(pool, send, random)) {
      each.forEach((value, i) => (more[i]! += value));
    }
    if (addEvidence(nats, more) >= proof) return groups;
  }
  return Infinity;
}

/** Groups until the evidence that an actor solves more than its three honest neighbors is a proof. */
function groupsUntilUnequal(pool: Pool, send: Send, random: Random): number {
  const nats = new Float64Array(solveBets.length);
  const solved = (by: Send) =>
    mean(groupFrom(pool, by, random).map(({ isCorrect }) => Number(isCorrect)));
  for (let groups = 1; groups <= mostGroups; groups++) {
    const others = Array.from({ length: 3 }, () => solved(drawn));
    if (addEvidence(nats, solveRateEvidence([solved(send)], others)) >= proof) {
      return groups;
    }
  }
  return Infinity;
}

type Pool = readonly (readonly Answer[])[];

/** A group of answers to a random problem. */
function groupFrom(pool: Pool, send: Send, random: Random): Answer[] {
  const answers = pool[random.int(pool.length)]!;
  return Array.from({ length: groupSize }, () => send(answers, random));
}

function drawn(answers: readonly Answer[], random: Random): Answer {
  return answers[random.int(answers.length)]!;
}

function untilRight(k: number) {
  return (answers: readonly Answer[], random: Random): Answer => {
    let answer = drawn(answers, random);
    for (let i = 1; i < k && !answer.isCorrect; i++) answer = drawn(answers, random);
    return answer;
  };
}

/** Draws again with this chance where an answer is wrong: as an actor that is slightly better for an honest reason. */
function onceMore(chance: number) {
  return (answers: readonly Answer[], random: Random): Answer =>
    (random.next() < chance ? untilRight(2) : drawn)(answers, random);
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

/**
 * Repeats the choice of each token from the ticket's random numbers, in groups of versions that are trained as a run does: honest ones
 * of one version; honest ones that adopt the next version after three tokens; and both of an actor that draws once more where an answer is wrong.
 */
async function replayFigures(): Promise<Figure[]> {
  const setting = await embeddedSetting();
  const { directory, weights, tokenizer, settings, task, dataset, decoder } = setting;
  const { vocabSize } = directory.config;
  const { temperature, maxTokens } = settings;
  const scorer = new Scorer(directory.config, weights, 1);
  const versions = await trainVersions(setting, { steps, groups: groupsOfEach, seed: 0 });
  const policies = versions.map(({ adapter }, version) => ({ version, adapter }));
  const random = createRandom('replay');
  const kinds = {
    'honest, one version': emptyReplay(),
    'honest, after an adoption': emptyReplay(),
    'until right, k = 2, one version': emptyReplay(),
    'until right, k = 2, after an adoption': emptyReplay(),
  };
  let [answers, moved] = [0, 0];
  for (let version = 1; version < steps; version++) {
    const problems = Array.from(
      { length: groupsOfEach },
      () => dataset.train[random.int(dataset.train.length)]!,
    );
    const sample = async (seedShift: number, at: (asked: number) => number) => {
      const requests = problems.map((problem, i) => ({
        prompt: promptTokens(task.prompt(problem), tokenizer),
        ...{ count: groupSize, temperature, maxTokens, stopTokenIds: tokenizer.eosTokenIds },
        seed: version * 1_000 + i + seedShift,
      }));
      let asked = 0;
      const sampled = await decoder.sampleGroups(requests, () => policies[at(asked++)]!);
      return requests.map((request, g) => ({ ...request, rollouts: sampled[g]! }));
    };
    const honest = await sample(0, () => version);
    const again = await sample(1e6, () => version);
    const next = await sample(0, () => version + 1);
    const adopts = (asked: number) => version + Number(asked >= 3);
    const [adopting, adoptingAgain] = [await sample(0, adopts), await sample(1e6, adopts)];
    for (const [g, group] of honest.entries()) {
      const isRight = ({ tokens }: SampledRollout) =>
        task.score(problems[g]!, tokenizer.decode(tokens)).isCorrect;
      const choose = (first: readonly SampledRollout[], second: readonly SampledRollout[]) =>
        first.map((one, r) => (isRight(one) ? one : second[r]!));
      const { rollouts } = group;
      const selected = choose(rollouts, again[g]!.rollouts);
      const adopted = adopting[g]!.rollouts;
      const adoptedAgain = choose(adopted, adoptingAgain[g]!.rollouts);
      await replay(kinds['honest, one version'], group, rollouts);
      await replay(kinds['honest, after an adoption'], group, adopted);
      await replay(kinds['until right, k = 2, one version'], group, selected);
      await replay(kinds['until right, k = 2, after an adoption'], group, adoptedAgain);
      answers += rollouts.length;
      moved += rollouts.filter(
        ({ tokens }, r) => tokens.join() !== next[g]!.rollouts[r]!.tokens.join(),
      ).length;
    }
  }
  return [
    ...Object.entries(kinds).flatMap(([what, { tokens, far, largest, groups, differ }]) => [
      { what: `replay, ${what}: tokens`, value: tokens, unit: '' },
      { what: '… of which differ by more than 0.0001', value: far, unit: '' },
      { what: '… the largest distance', value: largest, unit: '' },
      { what: '… groups with such a token', value: differ, unit: `of ${groups}` },
    ]),
    {
      what: 'answers that the next version changes, same numbers',
      value: (100 * moved) / answers,
      unit: '%',
    },
  ];

  /** Counts as `SelectionAudit` does, once for the tokens of the first version and once for those after an adoption. */
  async function replay(
    count: Replay,
    { prompt, seed }: { prompt: Int32Array; seed: number },
    rollouts: readonly SampledRollout[],
  ): Promise<void> {
    const isAdopting = rollouts.some(({ versions: runs }) => runs.length > 1);
    const found: number[] = [];
    for (const [r, { tokens, versions: runs }] of rollouts.entries()) {
      const draw = tokenDraws(seed, r);
      const text = Int32Array.of(...prompt, ...tokens);
      let t = 0;
      for (const [run, [version, length]] of runs.entries()) {
        const { adapter } = policies[version]!;
        const [inputs, targets] = [text.slice(0, -1), text.slice(1)];
        const [scored] = await scorer.scores([inputs], [targets], vocabSize, adapter, temperature);
        const { top } = scored!;
        for (const end = t + length; t < end; t++) {
          const row = prompt.length - 1 + t;
          const [from, to] = [row * vocabSize, (row + 1) * vocabSize];
          const here = {
            tokens: top.tokens.subarray(from, to),
            logprobs: top.logprobs.subarray(from, to),
          };
          const distance = distanceFromDraw(draw(), tokens[t]!, here, vocabSize);
          if (run > 0 || !isAdopting) found.push(distance);
        }
      }
    }
    const beyond = (distance: number) => found.filter((each) => each > distance).length;
    count.tokens += found.length;
    count.far += beyond(exactDistance);
    count.largest = Math.max(count.largest, ...found);
    count.groups += 1;
    count.differ += Number(beyond(exactDistance) > 0);
  }
}

const emptyReplay = () => ({ tokens: 0, far: 0, largest: 0, groups: 0, differ: 0 });
type Replay = ReturnType<typeof emptyReplay>;
