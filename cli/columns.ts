/**
 * The lines of a table, with two spaces between its columns. A column is aligned to the left unless `isRight` says
 * otherwise. The last one is padded only if it is aligned to the right.
 *
 * @param rows each with as many cells as the first one.
 */
export function alignedLines(
  rows: readonly (readonly string[])[],
  isRight: (column: number) => boolean = () => false,
): string[] {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  const aligned = (cell: string, i: number) => {
    if (isRight(i)) return cell.padStart(widths[i]!);
    return i === widths.length - 1 ? cell : cell.padEnd(widths[i]!);
  };
  return rows.map((row) => row.map(aligned).join('  '));
}
