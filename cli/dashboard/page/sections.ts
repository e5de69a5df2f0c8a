import { element } from '../../plot/markup.js';
import type { RunView } from '../run/run-view.js';
import { curvesOf, questions, type Curve } from './curves.js';
import { actorsMarkup, flowMarkup, waitingMarkup } from './flow-section.js';
import { headlineMarkup, titleMarkup } from './headline.js';
import { plotMarkup } from './plots.js';
import { samplesMarkup } from './samples.js';

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
export function mainMarkup(state: RunView): string {
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
    section('off-policy', questions['off-policy'], plots('off-policy')),
    section('the-flow', 'The flow', part('div', 'flow')),
    section('who-waits', questions.waiting, plots('waiting') + part('div', 'waiting')),
    section('the-actors', 'Actors', part('div', 'actors')),
    section('newest', 'The newest rollouts', part('div', 'samples')),
  ].join('');
}

function section(id: string, title: string, content: string): string {
  const heading = element('h2', { id: `${id}-heading` }, title);
  return element('section', { id, 'aria-labelledby': `${id}-heading` }, heading + content);
}
