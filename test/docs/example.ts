import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { format, type FormatConfig } from 'oxfmt';
import { packageRoot } from '../../shared/base/package-root.js';
import { withSection } from './markdown-table.js';

/** The pages that show the example of a task, with their text. */
export async function examplePages(): Promise<[path: string, page: string][]> {
  const paths = ['docs/new-task.md'];
  return Promise.all(
    paths.map(async (path): Promise<[string, string]> => [
      path,
      await readFile(join(packageRoot, path), 'utf8'),
    ]),
  );
}

/** The page with the current example. */
export async function updatedExample(page: string): Promise<string> {
  const path = join(packageRoot, 'test/docs/example-task/largest.ts');
  const source = await readFile(path, 'utf8');
  // With import paths as from a folder under shared/tasks; the shorter paths move line breaks.
  const text = source
    .replaceAll('../../../shared/tasks/', '../')
    .replaceAll('../../../shared/', '../../');
  const options = await readFile(join(packageRoot, '.oxfmtrc.json'), 'utf8');
  const { code } = await format(path, text, JSON.parse(options) as FormatConfig);
  return withSection(page, 'the example', `\`\`\`ts\n${code}\`\`\``);
}
