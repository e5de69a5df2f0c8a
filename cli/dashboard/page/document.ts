import { createHash } from 'node:crypto';
import { element, escaped } from '../../plot/markup.js';
import type { RunView } from '../run/run-view.js';
import { pageStyle } from './style.js';
import { curvesOf, questions, type Curve } from './curves.js';
import { plotMarkup } from './plots.js';
import { actorsMarkup, flowMarkup, waitingMarkup } from './flow-section.js';
import { samplesMarkup } from './samples.js';
import { formatSeconds } from '../../up/summary.js';
import { decimal, percent, unknown } from './format.js';

/** The page as first sent: complete, so that it can be read before its script has started. */
export function livePage(state: RunView): string {
  const head =
    '<link rel="stylesheet" href="/style.css"><link rel="icon" href="/icon.svg">' +
    '<script type="module" src="/page/main.js"></script>';
  const controls =
    element('p', { id: 'connection', role: 'status', class: 'soft' }, 'connecting') +
    element('button', { id: 'hold', type: 'button', 'aria-pressed': 'false' }, 'Pause');
  return page(state, head, controls);
}

/** The page as a single file that loads no other, without a script. */
export function reportPage(state: RunView): string {
  const digest = createHash('sha256').update(pageStyle).digest('base64');
  const policy = `default-src 'none'; style-src 'sha256-${digest}'; base-uri 'none'; form-action 'none'`;
  const head =
    `<meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">` +
    `<style>${pageStyle}</style>`;
  const made = new Date(state.at).toISOString().replace('T', ' ').slice(0, 16);
  return page(state, head, element('p', { class: 'soft' }, `as of ${made} UTC`));
}

function page(state: RunView, head: string, controls: string): string {
  const title = partsOf(state).get('title')!;
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    '<meta name="color-scheme" content="light dark">',
    `<title>${escaped(state.run)} · Offbeat</title>${head}</head><body>`,
    '<a class="skip" href="#main">Skip to the figures</a>',
    element(
      'header',
      {},
      element('div', { id: 'title' }, title) + element('div', { class: 'controls' }, controls),
    ),
    element('main', { id: 'main', tabindex: -1 }, mainMarkup(state)),
    '</body></html>\n',
  ].join('');
}

/** The parts of the page that change, by the id of their element. */
export type Parts = ReadonlyMap<string, string>;

export function partsOf(state: RunView): Parts {
  const curves = curvesOf(state.history, state.config);
  return new Map([
    ['title', titleMarkup(state)],
    ['headline', headlineMarkup(state)],
    ...curves.map((curve): [string, string] => [`plot-${curve.id}`, plotMarkup(curve)]),
    ['flow', flowMarkup(state)],
    ['waiting', waitingMarkup(state)],
    ['actors', actorsMarkup(state)],
    ['samples', samplesMarkup(state.samples)],
  ]);
}

/** The whole of `main`. */
function mainMarkup(state: RunView): string {
  const parts = partsOf(state);
  const part = (tag: string, id: string, attributes = {}) =>
    element(tag, { id, ...attributes }, parts.get(id));
  const curves = curvesOf(state.history, state.config);
  const plots = (question: Curve['question']) =>
    element(
      'div',
      { class: 'plots' },
      curves
        .filter((curve) => curve.question === question)
        .map(({ id }) => part('section', `plot-${id}`, { 'aria-labelledby': `${id}-title` }))
        .join(''),
    );
  return [
    part('dl', 'headline', { class: 'headline', 'aria-label': 'The newest figures' }),
    section('learning', questions.learning, plots('learning')),
    ...(isSupervised(state)
      ? []
      : [section('off-policy', questions['off-policy'], plots('off-policy'))]),
    section('the-flow', 'The flow', part('div', 'flow')),
    section('who-waits', questions.waiting, plots('waiting') + part('div', 'waiting')),
    section('the-actors', 'Actors', part('div', 'actors')),
    section('what-it-costs', questions.cost, plots('cost')),
    section('newest', 'The newest rollouts', part('div', 'samples')),
  ].join('');
}

function section(id: string, title: string, content: string): string {
  const heading = element('h2', { id: `${id}-heading` }, title);
  return element('section', { id, 'aria-labelledby': `${id}-heading` }, heading + content);
}

const phases = {
  live: 'training',
  stopped: 'no learner',
  silent: 'its NATS does not answer',
  over: 'over',
} as const;

/** The name and the phase of the run. */
function titleMarkup(state: RunView): string {
  const { run, phase, config, history } = state;
  const reason = history.summary?.['reason'];
  const why = phase === 'over' && typeof reason === 'string' ? `over: ${reason}` : phases[phase];
  const what =
    config === undefined
      ? 'waiting for the configuration of the learner'
      : isSupervised(state)
        ? `${config.model.name} on examples (${config.supervised?.data ?? ''}), ${config.loss.name}, ` +
          `${config.supervised?.batch.size ?? ''} ${config.supervised?.batch.by ?? ''} a step`
        : `${config.model.name} on ${config.task.name}, ${config.loss.name}, groups of ${config.groupSize}, ` +
          `${config.groupsPerBatch} a step, max_steps_off_policy ${config.isBoundAdaptive === true ? 'auto:' : ''}${config.maxStepsOffPolicy}`;
  return (
    element(
      'h1',
      {},
      `${escaped(run)} ${element('span', { class: `phase ${phase}` }, escaped(why))}`,
    ) + element('p', { class: 'soft' }, escaped(what))
  );
}

function isSupervised({ config }: Pick<RunView, 'config'>): boolean {
  return config?.trainOn === 'examples';
}

/** What the newest step solved: of the new problems, where the run also rehearses known ones. */
function solvedFigure(
  metrics: Readonly<Record<string, number>>,
): readonly [string, string, string] {
  const { 'env/new/correct': ofNew, 'env/rehearsal/correct': rehearsed } = metrics;
  return ofNew === undefined
    ? ['Solved', percent(metrics['env/all/correct']), 'while training']
    : ['Solved', percent(ofNew), `new problems in training; rehearsal ${percent(rehearsed)}`];
}

/** The most important figures. */
function headlineMarkup({ history, config }: Pick<RunView, 'history' | 'config'>): string {
  const { steps, evals } = history;
  const last = steps.at(-1);
  const metrics = last?.metrics ?? {};
  const recent = steps.slice(-10);
  const total = (key: string) => recent.reduce((sum, step) => sum + (step.metrics[key] ?? 0), 0);
  const seconds = total('seconds');
  const evaluated = evals.at(-1);
  // The durations of the steps, so that neither evaluations nor downtime are included.
  const trained = steps.reduce((sum, step) => sum + (step.metrics['seconds'] ?? 0), 0);
  const figures: (readonly [name: string, value: string, note: string])[] = [
    [
      'Step',
      last === undefined ? unknown : String(last.step),
      last === undefined ? '' : `${formatSeconds(trained)} of training`,
    ],
    ...(isSupervised({ config })
      ? ([
          ['-logprob', decimal(metrics['sft/nll'], 3), 'nats per token, before the newest step'],
          ['Epochs', decimal(metrics['sft/epoch'], 2), 'of the examples'],
        ] as const)
      : ([
          ['Reward', decimal(metrics['env/all/reward/total'], 3), 'mean of all answers'],
          solvedFigure(metrics),
        ] as const)),
    [
      'Held-out',
      percent(evaluated?.sampled),
      evaluated === undefined
        ? ''
        : `version ${evaluated.version}; greedily ${percent(evaluated.greedy)}`,
    ],
    ...(isSupervised({ config })
      ? ([
          [
            'Examples',
            seconds > 0 ? `${decimal(total('sft/examples') / seconds, 1)}/s` : unknown,
            'last 10 steps',
          ],
        ] as const)
      : ([
          [
            'Staleness',
            decimal(metrics['staleness/mean'], 2),
            last === undefined ? '' : `at most ${decimal(metrics['staleness/max'], 0)}`,
          ],
          [
            'Rollouts',
            seconds > 0 ? `${decimal(total('scored/rollouts') / seconds, 0)}/s` : unknown,
            'last 10 steps',
          ],
        ] as const)),
    [
      'Learner idle',
      seconds > 0 ? percent(total('idle_seconds') / seconds) : unknown,
      'last 10 steps',
    ],
  ];
  return figures
    .map(([name, value, note]) =>
      element(
        'div',
        {},
        element('dt', {}, name) +
          element('dd', {}, escaped(value) + element('span', { class: 'soft' }, escaped(note))),
      ),
    )
    .join('');
}
