import { element, escaped } from '../../plot/markup.js';

export interface Table {
  readonly caption: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[]; // plain text
  /** So many columns, from the left, are words; the others are figures and stand right. */
  readonly words: number;
}

/** A table of plain texts that scrolls by itself where the page is narrow. */
export function tableMarkup({ caption, head, rows, words }: Table): string {
  const kind = (i: number) => (i < words || head[i] === 'waiting for' ? {} : { class: 'figure' });
  const heads = head.map((name, i) => element('th', { scope: 'col', ...kind(i) }, escaped(name)));
  const lines = rows.map((row) => {
    const cells = row.map((cell, i) =>
      i === 0
        ? element('th', { scope: 'row' }, escaped(cell))
        : element('td', kind(i), escaped(cell)),
    );
    return element('tr', {}, cells.join(''));
  });
  const inner = [
    element('caption', {}, escaped(caption)),
    element('thead', {}, element('tr', {}, heads.join(''))),
    element('tbody', {}, lines.join('')),
  ].join('');
  const region = { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption };
  return element('div', region, element('table', {}, inner));
}
