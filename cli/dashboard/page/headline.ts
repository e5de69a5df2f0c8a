import { element, escaped } from '../../plot/markup.js';
import { formatSeconds } from '../../up/summary.js';
import type { RunView } from '../run/run-view.js';
import { decimal, percent, unknown } from './format.js';

const phases = {
  live: 'training',
  stopped: 'no learner',
  silent: 'its NATS does not answer',
  over: 'over',
} as const;

/** The run's name and how it is. */
export function titleMarkup(state: RunView): string {
  const { run, phase, config, history } = state;
  const reason = history.summary?.['reason'];
  const why = phase === 'over' && typeof reason === 'string' ? `over: ${reason}` : phases[phase];
  const what =
    config === undefined
      ? 'waiting for the learner to say what it trains'
      : `${config.model.name} on ${config.task.name}, ${config.loss.name}, groups of ${config.groupSize}, ` +
        `${config.groupsPerBatch} a step, max_steps_off_policy ${config.maxStepsOffPolicy}`;
  return (
    element(
      'h1',
      {},
      `${escaped(run)} ${element('span', { class: `phase ${phase}` }, escaped(why))}`,
    ) + element('p', { class: 'soft' }, escaped(what))
  );
}

/** The figures that one looks at first. */
export function headlineMarkup({ history }: Pick<RunView, 'history'>): string {
  const { steps, evals } = history;
  const last = steps.at(-1);
  const metrics = last?.metrics ?? {};
  const recent = steps.slice(-10);
  const total = (key: string) => recent.reduce((sum, step) => sum + (step.metrics[key] ?? 0), 0);
  const seconds = total('seconds');
  const evaluated = evals.at(-1);
  // Of its own time, so that neither evaluations nor a time when the run was down are in it.
  const trained = steps.reduce((sum, step) => sum + (step.metrics['seconds'] ?? 0), 0);
  const figures: [name: string, value: string, note: string][] = [
    [
      'Step',
      last === undefined ? unknown : String(last.step),
      last === undefined ? '' : `${formatSeconds(trained)} of training`,
    ],
    ['Reward', decimal(metrics['env/all/reward/total'], 3), 'mean of all answers'],
    ['Solved', percent(metrics['env/all/correct']), 'while training'],
    [
      'Held-out',
      percent(evaluated?.sampled),
      evaluated === undefined
        ? ''
        : `version ${evaluated.version}; greedily ${percent(evaluated.greedy)}`,
    ],
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
