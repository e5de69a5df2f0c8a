import { readFile } from 'node:fs/promises';
import { errorText, UserError } from '../../shared/base/errors.js';
import { createRandom, type Random } from '../../shared/base/random.js';

/** Draws the seconds that one answer takes when it is sampled without interruption. */
export type DrawSeconds = (random: Random) => number;

/** Lognormal answer times: long-tailed, as those of models that think. */
export function lognormalSeconds(median: number, sigma: number): DrawSeconds {
  return (random) => median * Math.exp(sigma * normal(random));
}

/** Answer times drawn with replacement from measured ones. */
export function measuredSeconds(seconds: readonly number[]): DrawSeconds {
  return (random) => seconds[random.int(seconds.length)]!;
}

/**
 * Reads measured answer times: one number of seconds a line.
 *
 * @throws {UserError} naming the file and the first line that is not a positive number.
 */
export async function readSeconds(path: string): Promise<number[]> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new UserError(`cannot read answer times: ${errorText(cause)}`, { cause });
  });
  const lines = text.split('\n').map((line) => line.trim());
  while (lines.at(-1) === '') lines.pop();
  if (lines.length === 0) {
    throw new UserError(`${path} is empty; give the seconds of one answer on each line`);
  }
  const bad = lines.findIndex(
    (line) => line === '' || !(Number(line) > 0 && isFinite(Number(line))),
  );
  if (bad !== -1) {
    throw new UserError(
      `${path}, line ${bad + 1} is "${lines[bad]!}"; give the seconds of one answer, a positive number`,
    );
  }
  return lines.map(Number);
}

/** The future: how long every answer takes. It depends on the seed alone, so every policy meets the same answers. */
export class Trace {
  readonly #draw: DrawSeconds;
  readonly #seed: number;

  constructor(draw: DrawSeconds, seed: number) {
    this.#draw = draw;
    this.#seed = seed;
  }

  /** @returns [count] seconds of the first answers to an attempt at a problem. */
  answersTo(problem: number, attempt: number, count: number): number[] {
    const random = createRandom(`${this.#seed}/${problem}/${attempt}`);
    return Array.from({ length: count }, () => this.#draw(random));
  }

  /** A standard normal number for each problem: the error of a prediction of its length. */
  predictionError(problem: number): number {
    return normal(createRandom(`${this.#seed}/${problem}/prediction`));
  }
}

/** A standard normal number (Box and Muller 1958). */
function normal(random: Random): number {
  const radius = Math.sqrt(-2 * Math.log(1 - random.next()));
  return radius * Math.cos(2 * Math.PI * random.next());
}
