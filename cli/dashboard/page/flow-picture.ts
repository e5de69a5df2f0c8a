import { element, text } from '../../plot/markup.js';
import type { Flow, QueueNow } from '../run/flow.js';
import { perSecond, unknown } from './format.js';

/** The figures at the arrows that no queue tells. */
export interface ArrowRates {
  readonly sampled: number | undefined; // groups a second, by all actors
  readonly trained: number | undefined; // groups a second, that the learner consumed
}

const size = { width: 900, height: 316 };

/** The loop of a run: who hands what to whom, how fast, and what lies between. Ids are the page's own. */
export function flowPicture(flow: Flow, rates: ArrowRates): string {
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

/** The picture in a sentence an arrow, for those who do not see it. */
export function flowWords(flow: Flow, rates: ArrowRates): string {
  const lies = ({ waiting, inHands }: QueueNow) => `${waiting} waiting and ${inHands} in hands`;
  return [
    `The learner issues ${perSecond(flow.tickets.perSecond)} tickets, ${lies(flow.tickets)}.`,
    `Actors sample ${perSecond(rates.sampled)} groups with policy version ${flow.version ?? unknown}.`,
    `Rollouts: ${perSecond(flow.rollouts.perSecond)}, ${lies(flow.rollouts)}.`,
    `The reward service scores ${perSecond(flow.scored.perSecond)}, ${lies(flow.scored)}.`,
    `The learner consumes ${perSecond(rates.trained)}; ${flow.awaitingCheckpoint} that it has consumed are kept until a checkpoint.`,
  ].join(' ');
}

const marker = element(
  'defs',
  {},
  element(
    'marker',
    {
      ...{ id: 'tip', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 8, markerHeight: 8 },
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
    text(`${waiting} waiting, ${inHands} in hands`, { ...middle, y: y + 40, class: 'rate' }),
  ].join('');
}
