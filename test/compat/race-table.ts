import { z } from 'zod';
import { mean } from '../../shared/base/statistics.js';
import { halfTInterval } from '../../tools/sweep/bootstrap.js';
import { alignedTable } from '../docs/markdown-table.js';

/** What a step of a run is known by. */
export const Step = z.object({
  seconds: z.number(), // since the command was given
  answers: z.int(), // that were sampled since the step before, for training
  right: z.number(), // of these
  staleness: z.number(), // mean, in versions
});

/** The steps of one system in its time. */
const Race = z.object({
  system: z.enum(['offbeat', 'cookbook']),
  bound: z.int(), // versions, as each system understands it
  loss: z.string(),
  learningRate: z.number(),
  schedule: z.string().optional(), // of the rate; by default that of the system
  windowPolicy: z.string().optional(), // what Offbeat does with late groups; by default it waits for them
  seed: z.int(),
  minutes: z.number(),
  steps: z.array(Step),
});
export type Race = z.infer<typeof Race>;

/** The races of a file with one in each line. */
export function racesIn(text: string): Race[] {
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => Race.parse(JSON.parse(line)));
}

/** A row for each system with its settings. */
export function raceTable(races: readonly Race[]): string {
  const arms = new Map<string, Race[]>();
  for (const race of races) {
    const name = JSON.stringify([race.system, race.bound, settingsOf(race)]);
    arms.set(name, [...(arms.get(name) ?? []), race]);
  }
  const rows = [...arms.values()].map((runs) => {
    const { system, minutes } = runs[0]!;
    const of = (value: (race: Race) => number) => runs.map(value);
    const end = 60 * minutes;
    return [
      `${system}, ${settingsOf(runs[0]!)}`,
      String(runs.length),
      spread(of(({ steps }) => within(steps, 0, end).length)),
      spread(of(({ steps }) => answersOf(within(steps, 0, end)) / minutes)),
      spread(of(({ steps }) => mean(within(steps, 0, end).map(({ staleness }) => staleness)))),
      ...[5, 10, 20].map((percent) =>
        spread(of(({ steps }) => secondsTo({ steps: within(steps, 0, end) }, percent / 100))),
      ),
      spread(of(({ steps }) => 100 * shareOf(within(steps, end - 60, end)))),
    ];
  });
  const head = ['', 'seeds', 'steps', 'answers a minute', 'staleness', 's to 5 %', '10 %', '20 %'];
  return alignedTable([[...head, 'right in the last minute, %'], ...rows]);
}

/** What a run differs in from others of its system. */
function settingsOf({ loss, learningRate, schedule, windowPolicy }: Race): string {
  const more = [schedule, windowPolicy].filter((setting) => setting !== undefined);
  return [`\`${loss}\` at ${learningRate}`, ...more].join(', ');
}

/**
 * Offbeat and the cookbook with the same loss, paired by seed: how many times as much or as fast. The mean is that of the
 * logarithms, with its 95 % t-interval. A share that is not reached counts as reached at the end, which favours that system.
 *
 * @param chosen the runs of Offbeat with these settings; without any, those with its defaults.
 */
export function raceRatios(
  races: readonly Race[],
  chosen: Pick<Race, 'schedule' | 'windowPolicy'> = {},
): string {
  const pairs = races
    .filter(
      ({ system, schedule, windowPolicy }) =>
        system === 'offbeat' &&
        schedule === chosen.schedule &&
        windowPolicy === chosen.windowPolicy,
    )
    .flatMap((ours) => {
      const theirs = races.find(
        ({ system, seed, loss, learningRate }) =>
          system === 'cookbook' &&
          seed === ours.seed &&
          loss === ours.loss &&
          learningRate === ours.learningRate,
      );
      return theirs === undefined ? [] : [[ours, theirs] as const];
    });
  const inTime = ({ steps, minutes }: Race) => within(steps, 0, 60 * minutes);
  const timeTo = (race: Race, percent: number) =>
    Math.min(60 * race.minutes, secondsTo({ steps: inTime(race) }, percent / 100));
  const row = (name: string, of: (race: Race) => number, isTime: boolean) => {
    const logs = pairs.map(([ours, theirs]) => Math.log(of(ours) / of(theirs)) * (isTime ? -1 : 1));
    const half = halfTInterval(logs) ?? NaN;
    const [low, high] = [mean(logs) - half, mean(logs) + half].map(Math.exp);
    const shown = (value: number) => value.toFixed(2);
    return [
      name,
      `${shown(Math.exp(mean(logs)))} (${shown(low!)} to ${shown(high!)})`,
      logs.map((log) => Math.exp(log).toFixed(1)).join(', '),
    ];
  };
  const missed = (percent: number) => {
    const count = (place: 0 | 1) =>
      pairs.filter((pair) => secondsTo({ steps: inTime(pair[place]) }, percent / 100) === Infinity)
        .length;
    return `fast to ${percent} % (not reached by Offbeat ${count(0)}, by the cookbook ${count(1)} times)`;
  };
  return alignedTable([
    ['Offbeat is so many times as …', 'of the cookbook', 'by seed'],
    row('many steps', (race) => inTime(race).length, false),
    row('many answers', (race) => answersOf(inTime(race)), false),
    ...[5, 10, 15, 20].map((percent) =>
      row(missed(percent), (race) => timeTo(race, percent), true),
    ),
  ]);
}

type Steps = Race['steps'];

function within(steps: Steps, from: number, to: number): Steps {
  return steps.filter(({ seconds }) => seconds > from && seconds <= to);
}

function answersOf(steps: Steps): number {
  return steps.reduce((sum, { answers }) => sum + answers, 0);
}

function shareOf(steps: Steps): number {
  return steps.reduce((sum, { right }) => sum + right, 0) / answersOf(steps);
}

/** Answers to new problems over which the share of right ones is taken. */
const windowAnswers = 2_048;

/** Seconds until this share of the newest answers is right; Infinity if it never is. */
export function secondsTo({ steps }: Pick<Race, 'steps'>, share: number): number {
  for (const [i, { seconds }] of steps.entries()) {
    let first = i;
    while (first > 0 && answersOf(steps.slice(first, i + 1)) < windowAnswers) first--;
    const window = steps.slice(first, i + 1);
    if (answersOf(window) >= windowAnswers && shareOf(window) >= share) return seconds;
  }
  return Infinity;
}

/** The mean with half of its 95 % t-interval over the seeds. */
function spread(values: readonly number[]): string {
  if (!values.every(Number.isFinite)) return 'not reached';
  const shown = (value: number) => value.toFixed(Math.abs(value) < 10 ? 1 : 0);
  const half = halfTInterval(values);
  return half === undefined ? shown(mean(values)) : `${shown(mean(values))} ± ${shown(half)}`;
}
