import { quantile } from '../../../shared/base/statistics.js';
import { alignedTable } from '../../docs/markdown-table.js';

/** One measured round of a side. */
export interface Round {
  readonly count: number; // tokens, rollouts: the same thing on both sides
  readonly processor: number; // seconds of all threads together
  readonly wall: number; // seconds
}

/** Ours or a peer, loaded and warm, until it is disposed of. */
export interface Side extends AsyncDisposable {
  round(): Promise<Round>;
}

/** The clock that a rate is measured by. */
export type Clock = 'processor' | 'wall';

/** The same work, done by ours and by the peer one after the other. */
export type Pair = readonly [ours: Round, peer: Round];

/** A line of the table. */
export interface Comparison {
  readonly row: string; // what is done, with its unit
  readonly side: string; // which of ours
  readonly peer: string;
  readonly pairs: readonly Pair[];
  readonly limit?: number; // as a rate: what one processor could do at most
  readonly missing?: string; // why there are no pairs
}

/** Alternates both sides, so that what else the machine does in a minute concerns both. */
export async function alternate(ours: Side, peer: Side, rounds: number): Promise<Pair[]> {
  const pairs: Pair[] = [];
  for (let i = 0; i < rounds; i++) {
    if (i % 2 === 0) pairs.push([await ours.round(), await peer.round()]);
    else {
      const second = await peer.round();
      pairs.push([await ours.round(), second]);
    }
  }
  return pairs;
}

/** How much there is in a second. */
export function rate(round: Round, clock: Clock): number {
  return round.count / round[clock];
}

/** The quarter below, the middle and the quarter above. */
export function quartiles(values: readonly number[]): readonly [number, number, number] {
  const sorted = values.toSorted((a, b) => a - b);
  return [quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)];
}

/** The lines as a Markdown table; a rate is the median of its rounds, a ratio that of the pairs, with its quartiles. */
export function comparisonTable(comparisons: readonly Comparison[], clock: Clock): string {
  const head = ['', 'Offbeat', 'peer', 'its rate', 'ratio', 'limit', 'share of it'];
  return alignedTable([head, ...comparisons.map((comparison) => cells(comparison, clock))]);
}

function cells({ row, side, peer, pairs, limit, missing }: Comparison, clock: Clock): string[] {
  const what = side === '' ? row : `${row}: ${side}`;
  if (missing !== undefined) return [what, '', peer, `not measured: ${missing}`, '', '', ''];
  const [ours, theirs] = [0, 1].map(
    (i) => quartiles(pairs.map((pair) => rate(pair[i]!, clock)))[1],
  );
  const [low, middle, high] = quartiles(
    pairs.map(([own, other]) => rate(own, clock) / rate(other, clock)),
  ).map((ratio) => ratio.toFixed(2));
  const bound =
    limit === undefined ? ['', ''] : [shown(limit), `${((100 * ours!) / limit).toFixed(0)} %`];
  return [what, shown(ours!), peer, shown(theirs!), `${middle!} (${low!} to ${high!})`, ...bound];
}

function shown(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3);
}
