import type { History } from '../report/history.js';

/**
 * What evaluations of earlier lives made of the weights that survived.
 *
 * @returns scores by step. A version that a crash undid has none here, though its step was made again.
 */
export function pastScores({ steps, evals }: Pick<History, 'steps' | 'evals'>): [number, number][] {
  const stepOf = new Map(steps.map(({ step, version }) => [version, step]));
  stepOf.set(0, 0); // a run begins with both
  return evals.flatMap(({ result: { version, sampled } }): [number, number][] => {
    const step = stepOf.get(version);
    return step === undefined ? [] : [[step, sampled]];
  });
}
