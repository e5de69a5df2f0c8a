/** A Markdown table as the formatter writes it; the first row is the header. */
export function alignedTable(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) =>
    Math.max(3, ...rows.map((row) => row[column]!.length)),
  );
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`;
  const rule = line(widths.map((width) => '-'.repeat(width)));
  const [head, ...body] = rows.map(line);
  return [head!, rule, ...body].join('\n');
}

/**
 * Replaces the text between a line `<!-- NAME: made by npm run docs -->` and the next `<!-- end -->` of a page.
 *
 * @throws {Error} if the page lacks one of the two.
 */
export function withSection(page: string, name: string, text: string): string {
  const begin = `<!-- ${name}: made by npm run docs -->`;
  const from = page.indexOf(begin);
  const to = page.indexOf('<!-- end -->', from);
  if (from === -1 || to === -1) throw new Error(`a page lacks ${begin} or the end of it`);
  return `${page.slice(0, from)}${begin}\n\n${text}\n\n${page.slice(to)}`;
}
