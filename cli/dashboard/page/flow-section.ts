import { element, escaped } from '../../plot/markup.js';
import { silentAfterSeconds } from '../run/actors.js';
import type { Flow, QueueNow } from '../run/flow.js';
import type { History } from '../run/history.js';
import { actorsWaiting, bottleneck, learnerWaiting, type Waiting } from '../run/idle.js';
import type { RunView } from '../run/run-view.js';
import { flowPicture, type ArrowRates } from './flow-picture.js';
import { decimal, percent, perSecond, unknown } from './format.js';
import { tableMarkup } from './table.js';

/** The flow as a picture and in figures, and what became of all tickets. */
export function flowMarkup({ flow, history }: Pick<RunView, 'flow' | 'history'>): string {
  const ends = endsTable(history);
  if (flow === undefined) {
    return (
      element('p', { class: 'soft' }, 'Nothing moves: the run is over, or was not reached yet.') +
      ends
    );
  }
  const rates: ArrowRates = { sampled: sampledPerSecond(flow), trained: trainedPerSecond(history) };
  const picture = element(
    'div',
    { class: 'scroll wide', tabindex: 0, role: 'region', 'aria-label': 'Picture of the flow' },
    flowPicture(flow, rates),
  );
  const row = (name: string, between: string, queue: QueueNow, leaves: number | undefined) => [
    ...[name, between, perSecond(queue.perSecond), perSecond(leaves)],
    ...[String(queue.waiting), String(queue.inHands), `${decimal(queue.oldestAgeSeconds, 1)} s`],
  ];
  const table = tableMarkup({
    caption: `The queues; ${flow.deadLetters} dead letters`,
    head: ['queue', 'between', 'come', 'go', 'waiting', 'in hands', 'oldest'],
    rows: [
      row('tickets', 'learner → actors', flow.tickets, rates.sampled),
      row('rollouts', 'actors → reward service', flow.rollouts, flow.scored.perSecond),
      row('scored groups', 'reward service → learner', flow.scored, rates.trained),
      [
        ...['consumed groups', 'kept until a checkpoint', unknown, unknown],
        ...['0', String(flow.awaitingCheckpoint), unknown],
      ],
    ],
    words: 2,
  });
  return picture + element('div', { class: 'tables' }, table + ends);
}

/** Who waits, how much and for what. */
export function waitingMarkup({ flow, history }: Pick<RunView, 'flow' | 'history'>): string {
  const learner = learnerWaiting(history);
  const actors = flow === undefined ? [] : actorsWaiting(flow);
  const all = [...(learner === undefined ? [] : [learner]), ...actors];
  const verdict = element('p', {}, escaped(bottleneck(history)));
  const table = tableMarkup({
    caption: 'Idle: the learner in its last 10 steps, actors in the last seconds',
    head: ['who', 'idle', 'waiting for'],
    rows: all.map((waiting) => [waiting.who, percent(waiting.share), reasons(waiting)]),
    words: 1,
  });
  return verdict + table;
}

function reasons({ causes }: Waiting): string {
  if (causes.length === 0) return 'nothing';
  return causes.map(({ share, why }) => `${why} (${percent(share)})`).join('; ');
}

/** The actors, with the version that each samples with. */
export function actorsMarkup({ flow }: Pick<RunView, 'flow'>): string {
  const actors = flow?.actors ?? [];
  if (actors.length === 0) return element('p', { class: 'soft' }, 'No actor is heard of now.');
  return tableMarkup({
    caption: `Actors; the newest policy version is ${flow?.version ?? 'not published yet'}`,
    head: ['actor', 'state', 'version', 'behind', 'samples', 'groups', 'heard of'],
    rows: actors.map((actor) => [
      actor.name,
      stateOf(actor),
      String(actor.version),
      String(actor.behind),
      `${actor.inFlight} of ${actor.limit}`,
      perSecond(actor.groupsPerSecond),
      `${decimal(actor.silentSeconds, 0)} s ago`,
    ]),
    words: 2,
  });
}

function stateOf({ isQuarantined, silentSeconds, inFlight }: Flow['actors'][number]): string {
  if (isQuarantined) return 'quarantined';
  if (silentSeconds > silentAfterSeconds) return 'silent';
  return inFlight > 0 ? 'sampling' : 'waiting';
}

function endsTable({ steps, summary }: History): string {
  const metrics = steps.at(-1)?.metrics ?? {};
  const last = (summary?.['groups'] ?? {}) as Readonly<Record<string, unknown>>;
  const rows = ends.flatMap(([name, key]) => {
    const count = last[key] ?? metrics[`groups/${key}`];
    return typeof count === 'number' ? [[name, String(count)]] : [];
  });
  if (rows.length === 0) return '';
  return tableMarkup({
    caption: 'What became of the tickets: issued is the sum of the others',
    head: ['tickets', 'count'],
    rows,
    words: 1,
  });
}

const ends: readonly [name: string, key: string][] = [
  ['issued', 'issued'],
  ['trained', 'trained'],
  ['skipped, without variance', 'skippedZeroVariance'],
  ['too stale', 'stale'],
  ['dead', 'dead'],
  ['outstanding', 'outstanding'],
];

function sampledPerSecond({ actors }: Flow): number | undefined {
  const known = actors.flatMap(({ groupsPerSecond }) => groupsPerSecond ?? []);
  return known.length === 0 ? undefined : known.reduce((sum, value) => sum + value, 0);
}

/** Over the last ten steps. */
function trainedPerSecond({ steps }: Pick<History, 'steps'>): number | undefined {
  const recent = steps.slice(-10);
  const total = (key: string) => recent.reduce((sum, { metrics }) => sum + (metrics[key] ?? 0), 0);
  const seconds = total('seconds');
  return seconds > 0 ? total('scored/groups') / seconds : undefined;
}
