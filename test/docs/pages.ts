import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';
import { filesUnder } from './sources.js';

/** A page of the documentation. */
export interface Page {
  readonly path: string; // from the root of the checkout
  readonly text: string;
}

/** A command that a page shows, on one line, without its comment. */
export interface Command {
  readonly page: string;
  readonly text: string;
  /** The requirement that the page states: `a cluster`. */
  readonly needs?: string;
  /** Files that run it literally, according to a comment of the page. */
  readonly testedBy: readonly string[];
  /** Files that do the equivalent, in another or shorter form, according to a comment of the page. */
  readonly doneOtherwiseBy: readonly string[];
  /** The output that the page shows. */
  readonly output?: string;
}

/** README.md first, then every Markdown file of the documentation. */
export async function readPages(): Promise<Page[]> {
  const ofDocs = (await filesUnder('docs')).filter((path) => path.endsWith('.md'));
  const first = ['docs/quick-start.md', 'README.md']; // it starts the run that other pages refer to
  const paths = [
    ...new Set([...first, ...ofDocs]),
    'tools/tuft-cpu/README.md',
    'shared/tasks/countdown/scoring.md',
  ];
  return Promise.all(
    paths.map(async (path) => ({ path, text: await readFile(join(packageRoot, path), 'utf8') })),
  );
}

/**
 * The commands in a page's `sh` blocks and in its `console` blocks, which also show the output.
 *
 * `# needs …` after a command, or as the first line of a block, states the requirement; comments
 * `<!-- tested by: FILE, FILE -->` and `<!-- done otherwise by: FILE, FILE -->` above a block name other files that run its
 * commands.
 */
export function commandsOf({ path, text }: Page): Command[] {
  return [...text.matchAll(fencedBlock)].flatMap(([, comments = '', language, block]) => {
    const named = (word: string): string[] =>
      new RegExp(`<!-- ${word}: (.+?) -->`).exec(comments)?.[1]?.split(/,\s*/) ?? [];
    const of = {
      page: path,
      testedBy: named('tested by'),
      doneOtherwiseBy: named('done otherwise by'),
    };
    return language === 'console'
      ? sessionsIn(block!).map((session) => ({ ...of, ...session }))
      : linesIn(block!).map((line) => ({ ...of, ...line }));
  });
}

/** Commands of docs/tasks.md that test/docs/tasks.test.ts reads from the page and runs with a local hub. */
export function isRunBesideHub({ page, text }: Command): boolean {
  return page === 'docs/tasks.md' && text.startsWith('npx offbeat score-server');
}

/** Data files that a page shows: a block after a line that ends in the file's name, as in `mine.json`: */
export function filesOf({ text }: Page): { readonly name: string; readonly text: string }[] {
  const blocks = text.matchAll(/`([\w-]+\.(?:json|jsonl|csv))`[:：]\n\n```\w+\n([^]*?)^```/gm);
  return [...blocks].map(([, name, content]) => ({ name: name!, text: content! }));
}

/** A page without its fenced blocks, whose characters are no Markdown. */
export function proseOf({ text }: Page): string {
  return text.replace(/^( *)```[^]*?^\1```$/gm, '');
}

/** The texts between single backticks of a page. */
export function codeSpans(page: Page): string[] {
  return [...proseOf(page).matchAll(/`([^`\n]+)`/g)].map(([, code]) => code!);
}

/** The targets of a page's links within the checkout. */
export function linksOf(page: Page): string[] {
  const prose = proseOf(page).replace(/`[^`\n]*`/g, '');
  const targets = [
    ...[...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target!),
    ...[...prose.matchAll(/(?:src|srcset|href)="([^"]+)"/g)].map(([, target]) => target!),
  ];
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

const fencedBlock =
  /((?:^ *<!-- (?:tested|done otherwise) by: .+? -->\n+)*)^ *```(sh|console)\n([^]*?)^ *```$/gm;
const need = /#.*(?:needs|需要)\s*(.+)$/;

function linesIn(block: string): Pick<Command, 'text' | 'needs'>[] {
  const lines = block
    .replace(/\\\n\s*/g, '')
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const [first] = lines;
  const ofAll = first?.startsWith('#') === true ? need.exec(first)?.[1] : undefined;
  return lines
    .filter((line) => !line.startsWith('#'))
    .map((line) => {
      const needs = need.exec(line)?.[1] ?? ofAll;
      return { text: withoutComment(line), ...(needs !== undefined && { needs }) };
    });
}

function sessionsIn(block: string): Pick<Command, 'text' | 'output'>[] {
  return block
    .split(/^\$ /m)
    .slice(1)
    .map((session) => {
      const [command = '', ...output] = session.split('\n');
      return { text: withoutComment(command), output: output.join('\n') };
    });
}

function withoutComment(line: string): string {
  return line.replace(/\s+#\s.*$/, '');
}

/** The code blocks of this language, in order. */
export function blocksOf(markdown: string, language: string): string[] {
  const blocks = markdown.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, 'gm'));
  return [...blocks].map(([, text]) => text!);
}

/** The text with a diff applied; each hunk must match exactly one place. */
export function patched(text: string, diff: string): string {
  return diff.split('@@\n').reduce((before, hunk) => {
    const lines = hunk.trimEnd().split('\n');
    const side = (sign: string) =>
      lines
        .filter((line) => !line.startsWith(sign))
        .map((line) => `${line.slice(1)}\n`)
        .join('');
    const [old, changed] = [side('+'), side('-')];
    assert.equal(before.split(old).length, 2, `the file does not have once:\n${old}`);
    return before.replace(old, () => changed);
  }, text);
}
