import { element, escaped, text } from '../../plot/markup.js';
import {
  type Flow,
  type QueueNow,
  actorsWaiting,
  bottleneck,
  learnerWaiting,
  type Waiting,
} from '../run/flow.js';
import type { History } from '../run/history.js';
import type { RunView } from '../run/run-view.js';
import { decimal, percent, perSecond, unknown, tableMarkup } from './format.js';

/** The flow as a picture and in figures, and the outcomes of all tickets. */
export function flowMarkup({ flow, history }: Pick<RunView, 'flow' | 'history'>): string {
  const ends = endsTable(history);
  if (flow === undefined) {
    return (
      element(
        'p',
        { class: 'soft' },
        'No flow: the run is over, or its NATS server has not answered yet.',
      ) + ends
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
    head: ['queue', 'between', 'come', 'go', 'waiting', 'in flight', 'oldest'],
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

/** The waiting times of learner and actors, by cause. */
export function waitingMarkup({ flow, history }: Pick<RunView, 'flow' | 'history'>): string {
  const learner = learnerWaiting(history);
  const actors = flow === undefined ? [] : actorsWaiting(flow);
  const all = [...(learner === undefined ? [] : [learner]), ...actors];
  const verdict = element('p', {}, escaped(bottleneck(history)));
  const table = tableMarkup({
    caption: 'Idle: the learner in its last 10 steps, actors in the last seconds',
    head: ['who', 'idle', 'waiting for'],
    rows: all.map((waiting) => [waiting.who, percent(waiting.share), awaited(waiting)]),
    words: 1,
  });
  return verdict + table;
}

function awaited({ causes }: Waiting): string {
  if (causes.length === 0) return 'nothing';
  return causes.map(({ share, what }) => `${what} (${percent(share)})`).join('; ');
}

/** The actors, with the version that each samples with. */
export function actorsMarkup({ flow }: Pick<RunView, 'flow'>): string {
  const actors = flow?.actors ?? [];
  if (actors.length === 0) return element('p', { class: 'soft' }, 'No actor is reporting.');
  const table = tableMarkup({
    caption: `Actors; the newest policy version is ${flow?.version ?? 'not published yet'}`,
    head: ['actor', 'state', 'version', 'behind', 'samples', 'groups', 'last seen'],
    rows: actors.map((actor) => [
      actor.actor,
      stateOf(actor),
      String(actor.version ?? unknown),
      String(actor.behind ?? unknown),
      `${actor.inFlight} of ${actor.limit}`,
      perSecond(actor.groupsPerSecond),
      `${decimal(actor.seenSecondsAgo, 0)} s ago`,
    ]),
    words: 2,
  });
  return table + enginesTable(flow?.engines ?? []);
}

/** The servers of vLLM or SGLang, one row for each and actor; nothing without them. */
function enginesTable(engines: Flow['engines']): string {
  if (engines.length === 0) return '';
  return tableMarkup({
    caption: 'Engines: their sequences and cache of keys and values, of all their clients',
    head: ['engine', 'actor', 'state', 'release', 'running', 'queued', 'KV cache', 'versions'],
    rows: engines.map((engine) => [
      ...[engine.url, engine.actor],
      engine.trouble === null ? 'in use' : `out of use: ${engine.trouble}`,
      engine.release ?? unknown,
      ...[engine.running, engine.waiting].map((count) => String(count ?? unknown)),
      engine.kvUsage === null ? unknown : percent(engine.kvUsage),
      `${engine.adapters} of ${engine.slots}`,
    ]),
    words: 4,
  });
}

function stateOf({ isQuarantined, isLive, inFlight, refused }: Flow['actors'][number]): string {
  if (isQuarantined) return 'quarantined';
  if (!isLive) return 'silent';
  if (refused !== null) return `refuses version ${refused}`;
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
    caption: 'Outcomes of the tickets: issued is the sum of the others',
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

/** The rates at the arrows that do not follow from a queue. */
interface ArrowRates {
  readonly sampled: number | undefined; // groups per second, by all actors
  readonly trained: number | undefined; // groups per second that the learner consumed
}

const size = { width: 900, height: 316 };

/** The loop of a run: services, queues and rates. Its element ids are unique in the page. */
function flowPicture(flow: Flow, rates: ArrowRates): string {
  const { tickets, rollouts, scored, awaitingCheckpoint, actors, version, versionsPerMinute } =
    flow;
  const busy = actors.reduce((sum, { inFlight }) => sum + inFlight, 0);
  const room = actors.reduce((sum, { limit }) => sum + limit, 0);
  const perMinute =
    versionsPerMinute === undefined ? unknown : `${versionsPerMinute.toFixed(1)}/min`;
  const parts = [
    arrow('M170 62 H362', 266, 54, perSecond(tickets.perSecond)),
    arrow('M538 62 H722', 630, 54, perSecond(rates.sampled)),
    arrow(
      'M170 130 H722',
      450,
      122,
      `policy version ${version ?? unknown}, ${perMinute}`,
      'policy',
    ),
    arrow('M805 172 V264 H760', 838, 232, perSecond(rollouts.perSecond)),
    arrow('M592 264 H544', 568, 254, perSecond(scored.perSecond)),
    arrow('M356 264 H308', 332, 254, perSecond(scored.perSecond)),
    arrow('M140 264 H95 V180', 62, 232, perSecond(rates.trained)),
    service(20, 30, 150, 'learner', [
      `at version ${version ?? unknown}`,
      ...(awaitingCheckpoint === 0 ? [] : [`${awaitingCheckpoint} groups await`, 'a checkpoint']),
    ]),
    service(730, 30, 150, actors.length === 1 ? '1 actor' : `${actors.length} actors`, [
      `${busy} of ${room} groups`,
      'are being sampled',
    ]),
    service(364, 228, 172, 'reward service', [], 72),
    queue(370, 36, 'tickets', tickets),
    queue(592, 238, 'rollouts', rollouts),
    queue(140, 238, 'scored groups', scored),
  ];
  return element(
    'svg',
    {
      viewBox: `0 0 ${size.width} ${size.height}`,
      class: 'chart flow',
      role: 'img',
      'aria-label': flowWords(flow, rates),
    },
    marker + parts.join(''),
  );
}

/** The picture in one sentence per arrow, for screen readers. */
function flowWords(flow: Flow, rates: ArrowRates): string {
  const lies = ({ waiting, inHands }: QueueNow) => `${waiting} waiting and ${inHands} in flight`;
  return [
    `The learner issues ${perSecond(flow.tickets.perSecond)} tickets, ${lies(flow.tickets)}.`,
    `Actors sample ${perSecond(rates.sampled)} groups with policy version ${flow.version ?? unknown}.`,
    `Rollouts: ${perSecond(flow.rollouts.perSecond)}, ${lies(flow.rollouts)}.`,
    `The reward service scores ${perSecond(flow.scored.perSecond)}, ${lies(flow.scored)}.`,
    `The learner consumes ${perSecond(rates.trained)}; ${flow.awaitingCheckpoint} consumed groups are kept until a checkpoint.`,
  ].join(' ');
}

const marker = element(
  'defs',
  {},
  element(
    'marker',
    {
      id: 'tip',
      viewBox: '0 0 8 8',
      refX: 7,
      refY: 4,
      markerWidth: 8,
      markerHeight: 8,
      orient: 'auto-start-reverse',
      markerUnits: 'userSpaceOnUse',
    },
    element('path', { d: 'M0 0 L8 4 L0 8 Z', class: 'tip' }),
  ),
);

function arrow(d: string, x: number, y: number, label: string, kind = 'data'): string {
  const line = element('path', { d, class: `arrow ${kind}`, 'marker-end': 'url(#tip)' });
  return line + text(label, { x, y, class: 'rate', 'text-anchor': 'middle' });
}

function service(
  x: number,
  y: number,
  width: number,
  name: string,
  lines: readonly string[],
  height = 142,
): string {
  const middle = { x: x + width / 2, 'text-anchor': 'middle' };
  const top = y + height / 2 - lines.length * 9 + 5;
  return [
    element('rect', { x, y, width, height, rx: 10, class: 'service' }),
    text(name, { ...middle, y: top, class: 'name' }),
    ...lines.map((line, i) => text(line, { ...middle, y: top + 20 + i * 18, class: 'rate' })),
  ].join('');
}

const queueSize = { width: 168, height: 52 };

function queue(x: number, y: number, name: string, { waiting, inHands }: QueueNow): string {
  const middle = { x: x + queueSize.width / 2, 'text-anchor': 'middle' };
  return [
    element('rect', { x, y, ...queueSize, rx: 26, class: 'queue' }),
    text(name, { ...middle, y: y + 22, class: 'name' }),
    text(`${waiting} waiting, ${inHands} in flight`, { ...middle, y: y + 40, class: 'rate' }),
  ].join('');
}
