import { sum } from '../../shared/base/statistics.js';
import type { Table } from '../sweep/table.js';
import type { Comparison, PolicyResult } from './compare.js';

/** One row for what is attainable under each bound, and one for each policy. */
export function comparisonTable(comparisons: readonly Comparison[]): Table {
  return {
    head: [
      ...['bound', 'policy', 'steps/hour', 'of attainable', 'learner idle'],
      ...['staleness', 'of tokens', 'dropped', 'masked', 'wasted', 'length bias', 'tail trained'],
    ],
    rows: comparisons.flatMap(({ bound, attainable, results }) => [
      [String(bound), '(attainable)', shownRate(attainable), ...Array<string>(9).fill('')],
      ...results.map((result) => [String(bound), ...policyCells(result)]),
    ]),
  };
}

function policyCells(result: PolicyResult): string[] {
  return [
    result.policy,
    shownRate(result.stepsPerHour),
    shownShare(result.ofAttainable),
    shownShare(result.idleShare),
    shownAges(result.groupStaleness),
    shownAges(result.tokenStaleness),
    shownShare(result.droppedShare),
    shownShare(result.maskedShare),
    shownShare(result.wastedShare),
    result.lengthDistance.toFixed(3),
    shownShare(result.tailShare),
  ];
}

function shownRate(stepsPerHour: number): string {
  return Math.round(stepsPerHour).toLocaleString('en');
}

function shownShare(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}

/** The mean and the largest age. @param weights by age, in versions. */
function shownAges(weights: ReadonlyMap<number, number>): string {
  const total = sum([...weights.values()]);
  const mean = sum([...weights].map(([age, weight]) => age * weight)) / total;
  return `${mean.toFixed(1)}, max ${Math.max(...weights.keys())}`;
}
