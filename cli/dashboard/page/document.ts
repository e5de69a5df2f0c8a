import { createHash } from 'node:crypto';
import { element, escaped } from '../../plot/markup.js';
import type { RunView } from '../run/run-view.js';
import { mainMarkup, partsOf } from './sections.js';
import { pageStyle } from './style.js';

/** The page as it is first sent: complete, so that it can be read before its script has started. */
export function livePage(state: RunView): string {
  const head =
    '<link rel="stylesheet" href="/style.css"><link rel="icon" href="/icon.svg">' +
    '<script type="module" src="/page/main.js"></script>';
  const controls =
    element('p', { id: 'connection', role: 'status', class: 'soft' }, 'connecting') +
    element('button', { id: 'hold', type: 'button', 'aria-pressed': 'false' }, 'Hold still');
  return page(state, head, controls);
}

/** The same in a single file that needs nothing else, without a script. */
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
