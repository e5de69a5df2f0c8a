import { element, escaped } from '../../plot/markup.js';
import type { SampledGroup, SampledPiece, SampledRollout } from '../run/sampled-group.js';
import { decimal, figure, percent, tableMarkup } from './format.js';

/** Lower bounds of a token's probability, the most certain first: each has a color, `p0` to `p5`. */
const bounds = [0.99, 0.9, 0.6, 0.3, 0.1, 0];

/** The newest rollouts. The texts of a model are escaped. */
export function samplesMarkup(samples: readonly SampledGroup[]): string {
  if (samples.length === 0) {
    return element(
      'p',
      { class: 'soft' },
      'No rollouts are available: they are read from the queue of scored groups while the run is live, and some are kept.',
    );
  }
  return keyMarkup() + samples.map(groupMarkup).join('');
}

function keyMarkup(): string {
  const entries = bounds.map((bound, i) =>
    element(
      'li',
      {},
      element(
        'span',
        { class: `t p${i}` },
        `${i === bounds.length - 1 ? 'below' : 'from'} ${percent(i === bounds.length - 1 ? bounds[i - 1] : bound, 0)}`,
      ),
    ),
  );
  return (
    element(
      'p',
      { id: 'key', class: 'soft' },
      'Each token is colored by the probability that it was drawn with:',
    ) + element('ul', { class: 'key', 'aria-labelledby': 'key' }, entries.join(''))
  );
}

function groupMarkup(group: SampledGroup): string {
  const { ticketId, problemId, actor, prompt, rollouts } = group;
  const correct = rollouts.filter(({ score }) => score.isCorrect).length;
  const head = element('h3', {}, `Problem ${escaped(problemId)}`);
  const about = `ticket ${ticketId} by ${actor}; ${correct} of ${rollouts.length} answers are correct`;
  return element(
    'article',
    { 'data-key': ticketId },
    head +
      element('p', { class: 'soft' }, escaped(about)) +
      element('pre', { class: 'prompt', 'aria-label': 'Prompt' }, escaped(prompt)) +
      element('ol', { class: 'rollouts' }, rollouts.map(rolloutMarkup).join('')),
  );
}

function rolloutMarkup({ pieces, omitted, stopReason, score }: SampledRollout, i: number): string {
  const tokens = pieces.map(tokenMarkup).join('');
  const more = omitted > 0 ? element('span', { class: 'soft' }, ` … ${omitted} more tokens`) : '';
  const parts = [
    `reward ${figure(score.reward)}`,
    score.reason.replaceAll('_', ' '),
    score.hasFormat ? 'format found' : 'no format',
    score.isValid ? 'valid' : 'not valid',
    ...(score.value === undefined ? [] : [`has the value ${score.value}`]),
    ...(stopReason === 'length' ? ['truncated at the maximum length'] : []),
  ];
  const verdict = element(
    'p',
    { class: 'verdict' },
    element(
      'strong',
      { class: score.isCorrect ? 'good' : 'bad' },
      score.isCorrect ? '✓ correct' : '✗ wrong',
    ) + escaped(` ${parts.join(' · ')}`),
  );
  const answer = element(
    'pre',
    { class: 'answer', 'aria-label': `Answer ${i + 1}` },
    tokens + more,
  );
  return element('li', {}, answer + verdict + tokenTable(pieces, i));
}

function tokenMarkup({ text, logprob, version }: SampledPiece): string {
  const probability = Math.exp(logprob);
  const place = bounds.findIndex((bound) => probability >= bound);
  const title = `${percent(probability)}, logprob ${decimal(logprob, 3)}, version ${version}`;
  return element('span', { class: `t p${place}`, title }, escaped(visible(text)));
}

/** The same in figures, for readers who cannot point at a token or distinguish the colors. */
function tokenTable(pieces: readonly SampledPiece[], i: number): string {
  const table = tableMarkup({
    caption: `Tokens of answer ${i + 1}`,
    head: ['token', 'probability', 'logprob', 'version'],
    rows: pieces.map(({ text, logprob, version }) => [
      visible(text),
      ...[percent(Math.exp(logprob)), decimal(logprob, 3), String(version)],
    ]),
    words: 1,
  });
  return element('details', {}, element('summary', {}, 'Tokens') + table);
}

/** A special token has no text, but was sampled. */
function visible(text: string): string {
  return text === '' ? '∎' : text;
}
