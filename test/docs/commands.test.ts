import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { kustomize } from '../support/kubernetes.js';
import { offbeatCommand, readFlags } from './flags.js';
import { commandsOf, filesOf, isRunBesideHub, readPages, type Command } from './pages.js';
import { Terminal } from './terminal.js';

/** Requirements that this machine lacks; all other commands are run literally, or for fewer steps, or by a named test. */
const needs = [/cluster|集群/, /GPU/, /Docker/, /Debian/, /the network/, /hour/];

describe('the commands of the documentation', { timeout: 1_800_000 }, async () => {
  const pages = await readPages();
  const commands = pages.flatMap(commandsOf);
  const kubectl = await kustomize();
  let terminal: Terminal;
  before(async () => {
    terminal = await Terminal.open();
    for (const { name, text } of pages.flatMap(filesOf)) {
      await writeFile(join(terminal.folder, name), text);
    }
    process.chdir(terminal.folder); // the folder in which --config my.json is searched
  });
  after(async () => {
    process.chdir(packageRoot);
    await terminal[Symbol.asyncDispose]();
  });

  it('the documentation has more than 50 commands, with that of the README to start', () => {
    assert(commands.length > 50, String(commands.length));
    const ofReadme = commands.filter(({ page }) => page === 'README.md').map(({ text }) => text);
    assert(ofReadme.includes('npm start'), ofReadme.join('\n'));
  });

  for (const command of onceEach(commands)) {
    const { page, text, testedBy, doneOtherwiseBy, output } = command;
    const name = `${text} (${page})`;
    const offbeat = offbeatCommand(text);
    if (offbeat !== undefined) {
      it(`a command has only flags that its parser accepts: ${name}`, async () => {
        await readFlags(offbeat);
      });
    }
    if (command.needs !== undefined) {
      it(`a command needs something that is unavailable here: ${name}`, () => {
        assert(
          needs.some((thing) => thing.test(command.needs!)),
          command.needs,
        );
      });
    } else if (isRunBesideHub(command)) {
      it(`a command is read from its page and run by another test: ${name}`, () => {
        assert.deepEqual(testedBy, ['test/docs/tasks.test.ts']);
      });
    } else if (doneOtherwiseBy.length > 0) {
      it(`an existing test does the equivalent of a command: ${name}`, async () => {
        const texts = await Promise.all(doneOtherwiseBy.map(read));
        const word = wordOf(text);
        assert(
          texts.some((test) => test.includes(word)),
          `${doneOtherwiseBy.join(', ')} never says ${word}`,
        );
      });
    } else if (testedBy.length > 0) {
      it(`a command is run literally by another test: ${name}`, async () => {
        const texts = await Promise.all(testedBy.map(read));
        assert(
          texts.some((test) => new RegExp(`${escaped(text)}(?![\\w-])`).test(test)),
          `${testedBy.join(', ')} never runs \`${text}\`; ${remedy}`,
        );
      });
    } else if (isServer(text)) {
      it(`a server command serves until it is asked to stop: ${name}`, async () => {
        await terminal.serve(text);
      });
    } else {
      const skip = text.startsWith('kubectl ') && typeof kubectl === 'string' && kubectl;
      it(`a command works: ${name}`, { skip }, async () => {
        const result = await terminal.run(text);
        if (output === undefined) assert.equal(result.code, 0, `${remedy}\n${result.output}`);
        else assert.equal(result.output, output.trim());
      });
    }
  }
});

const remedy =
  'mark a command that cannot run here with "# needs a cluster" after it, or above its block with ' +
  '"<!-- tested by: test/… -->" or "<!-- done otherwise by: test/… -->"; see test/docs/pages.ts';

/** Whether a command is a server, which ends only when asked to. */
const isServer = (text: string) => /^npx offbeat (dashboard|score-server)\b/.test(text);

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

const read = (path: string) => readFile(join(packageRoot, path), 'utf8');

/** Each command once: pages repeat commands, and translations have those of their originals. */
function onceEach(commands: readonly Command[]): Command[] {
  const first = new Map<string, Command>();
  for (const command of commands) {
    if (!first.has(command.text)) first.set(command.text, command);
  }
  return [...first.values()];
}

/** The word that an equivalent test must contain: the script, or the command after `offbeat`. */
function wordOf(line: string): string {
  const offbeat = offbeatCommand(line);
  if (offbeat !== undefined) return offbeat.name === 'up' ? 'Up' : offbeat.name;
  const words = line.split(/\s+/).filter((word) => !/^[A-Z_]+=/.test(word));
  if (words[0] === 'curl') return words[1]!.replace(/^[^/]*/, ''); // the route
  const word = words[0] === 'npm' ? words[words[1] === 'run' ? 2 : 1]! : words[0]!;
  return word.replace(/^test:/, '');
}
