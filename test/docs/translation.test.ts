import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { codeIn, tableUnder } from './metrics-table.js';
import { codeSpans, commandsOf, linksOf, proseOf, readPages, type Page } from './pages.js';

/** Pages that say in Chinese what the English page of the same name says, paragraph by paragraph. */
const translated = readdirSync(join(packageRoot, 'docs/zh'))
  .filter((name) => name !== 'README.md') // a list of the pages
  .filter((name) => name !== 'configuration.md'); // its tables are generated, and in English alone

describe('the Chinese pages', async () => {
  const pages = new Map((await readPages()).map((page) => [page.path, page]));
  const page = (path: string): Page => pages.get(path)!;

  it('are four and a shortened one', () => {
    assert.equal(translated.length, 4);
  });

  it('list every page of the documentation', () => {
    const listed = new Set(targetsOf(page('docs/zh/README.md')));
    const all = [...pages.keys()].filter((path) => /^docs\/[\w-]+\.md$/.test(path));
    assert.deepEqual(
      all.filter((path) => !listed.has(path)),
      [],
    );
  });

  it('say nothing of the configuration that the English page does not say', () => {
    const english = new Set(codeSpans(page('docs/configuration.md')));
    const chinese = codeSpans(page('docs/zh/configuration.md'));
    assert.deepEqual(
      chinese.filter((code) => !english.has(code)),
      [],
    );
    const variablesOf = (path: string, heading: string) =>
      uniqueSorted(tableUnder(page(path).text, heading).flatMap(([cell]) => codeIn(cell!)));
    assert.deepEqual(
      variablesOf('docs/zh/configuration.md', '## 其他环境变量'),
      variablesOf('docs/configuration.md', '## Other variables of the environment'),
    );
  });

  for (const name of translated) {
    describe(name, () => {
      const [english, chinese] = [page(`docs/${name}`), page(`docs/zh/${name}`)];

      it('has the same headings, by their levels', () => {
        assert.deepEqual(headingsOf(chinese), headingsOf(english));
      });

      it('names the same flags, metrics, files, buckets and commands', () => {
        assert.deepEqual(uniqueSorted(codeSpans(chinese)), uniqueSorted(codeSpans(english)));
        const commands = (of: Page) => commandsOf(of).map(({ text }) => text);
        assert.deepEqual(commands(chinese), commands(english));
      });

      it('has the same tables, and the same names in each row', () => {
        assert.deepEqual(rowsOf(chinese), rowsOf(english));
      });

      it('leads to the same pages', () => {
        const to = (of: Page) => uniqueSorted(targetsOf(of));
        assert.deepEqual(to(chinese), to(english));
      });

      it('tells of the same exit codes', () => {
        const codes = ({ text }: Page, word: string) => {
          const inProse = text.matchAll(new RegExp(`${word}\\D{0,3}(\\d+)`, 'g'));
          const inTables = text.matchAll(new RegExp(`^\\| ${word}[^]*?\\n\\n`, 'gm'));
          const rows = [...inTables].flatMap(([table]) => [...table.matchAll(/^\| (\d+) /gm)]);
          return uniqueSorted([...inProse, ...rows].map(([, code]) => code!));
        };
        assert.deepEqual(codes(chinese, '退出码'), codes(english, 'exit code'));
      });
    });
  }
});

function headingsOf(page: Page): string[] {
  return [...proseOf(page).matchAll(/^(#+) /gm)].map(([, level]) => level!);
}

/** Of every row of every table: how many cells it has, and the names in it. */
function rowsOf(page: Page): string[] {
  return [...proseOf(page).matchAll(/^\|.*$/gm)].map(([row]) => {
    const names = uniqueSorted([...row.matchAll(/`([^`]+)`/g)].map(([, code]) => code!));
    return [row.split('|').length - 2, ...names].join(' ');
  });
}

/** The pages that a page links to: the Chinese one and its original count as the same. */
function targetsOf(page: Page): string[] {
  return linksOf(page)
    .map((link) => link.split('#')[0]!)
    .filter((file) => file !== '')
    .map((file) => normalize(join(dirname(page.path), file)))
    .filter((path) => path.endsWith('.md'))
    .map((path) => (dirname(path) === 'docs/zh' ? join('docs', basename(path)) : path));
}

function uniqueSorted(words: readonly string[]): string[] {
  return [...new Set(words)].sort();
}
