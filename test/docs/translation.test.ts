import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { codeIn, tableUnder } from './metrics-table.js';
import { codeSpans, commandsOf, linksOf, proseOf, readPages, type Page } from './pages.js';

/** Chinese translations, paragraph by paragraph, of the English pages of the same names. */
const translated = readdirSync(join(packageRoot, 'docs/zh'))
  .filter((name) => name !== 'README.md') // a list of the pages
  .filter((name) => name !== 'configuration.md'); // its tables are generated, and in English alone

describe('the Chinese pages', async () => {
  const pages = new Map((await readPages()).map((page) => [page.path, page]));
  const page = (path: string): Page => pages.get(path)!;

  it('the Chinese pages are four translations and a shortened page', () => {
    assert.equal(translated.length, 4);
  });

  it('the Chinese README lists every page of the documentation', () => {
    const listed = new Set(targetsOf(page('docs/zh/README.md')));
    const all = [...pages.keys()].filter((path) => /^docs\/[\w-]+\.md$/.test(path));
    assert.deepEqual(
      all.filter((path) => !listed.has(path)),
      [],
    );
  });

  it('the Chinese page on configuration has no name that the English page lacks', () => {
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

      it('the Chinese page has headings of the same levels', () => {
        assert.deepEqual(headingsOf(chinese), headingsOf(english));
      });

      it('the Chinese page names the same flags, metrics, files, buckets and commands', () => {
        assert.deepEqual(uniqueSorted(codeSpans(chinese)), uniqueSorted(codeSpans(english)));
        const commands = (of: Page) => commandsOf(of).map(({ text }) => text);
        assert.deepEqual(commands(chinese), commands(english));
      });

      it('the Chinese page has the same tables with the same names in each row', () => {
        assert.deepEqual(rowsOf(chinese), rowsOf(english));
      });

      it('the Chinese page links to the same pages', () => {
        const to = (of: Page) => uniqueSorted(targetsOf(of));
        assert.deepEqual(to(chinese), to(english));
      });

      it('the Chinese page lists the same exit codes', () => {
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

/** For every row of every table: the number of cells and the names in it. */
function rowsOf(page: Page): string[] {
  return [...proseOf(page).matchAll(/^\|.*$/gm)].map(([row]) => {
    const names = uniqueSorted([...row.matchAll(/`([^`]+)`/g)].map(([, code]) => code!));
    return [row.split('|').length - 2, ...names].join(' ');
  });
}

/** The pages that a page links to; a translation counts as its original. */
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
