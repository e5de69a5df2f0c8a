import { element, escaped } from '../../plot/markup.js';

/** The text for an unknown figure. */
export const unknown = '–';

/** A number with the given count of decimals. */
export function decimal(value: number | undefined, decimals: number): string {
  return value === undefined || !Number.isFinite(value) ? unknown : value.toFixed(decimals);
}

/** A share as `48.1 %`. */
export function percent(share: number | undefined, decimals = 1): string {
  return share === undefined ? unknown : `${decimal(100 * share, decimals)}\u00A0%`;
}

/** A number with four significant digits, also if very small or very large. */
export function figure(value: number): string {
  return String(Number(value.toPrecision(4)));
}

/** A rate as `12.5/s`, slower ones per minute. */
export function perSecond(value: number | undefined): string {
  if (value === undefined) return unknown;
  if (value !== 0 && value < 0.1) return `${(60 * value).toFixed(1)}/min`;
  return `${value.toFixed(value < 100 ? 1 : 0)}/s`;
}

interface Table {
  readonly caption: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[]; // plain text
  /** How many columns, from the left, are words; the others are figures, aligned right. */
  readonly words: number;
}

/** A table of plain texts that scrolls by itself on a narrow page. */
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
