import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { packageRoot } from '../../shared/package-root.js';
import { kustomize } from '../support/kubernetes.js';
import { offbeatCommand, readFlags } from './flags.js';
import { commandsOf, filesOf, readPages, type Command } from './pages.js';
import { Terminal } from './terminal.js';

/** What nobody has here; everything else is run, or a test is named that runs it. */
const needs = [/cluster|集群/, /GPU/, /Docker/, /Debian/, /the network/, /hour/];

describe('the commands of the documentation', { timeout: 600_000 }, async () => {
  const pages = await readPages();
  const commands = pages.flatMap(commandsOf);
  const kubectl = await kustomize();
  let terminal: Terminal;
  before(async () => {
    terminal = await Terminal.open();
    for (const { name, text } of pages.flatMap(filesOf)) {
      await writeFile(join(terminal.folder, name), text);
    }
    process.chdir(terminal.folder); // where --config my.json is looked for
  });
  after(async () => {
    process.chdir(packageRoot);
    await terminal[Symbol.asyncDispose]();
  });

  it('are there', () => {
    assert(commands.length > 50);
  });

  for (const command of onceEach(commands)) {
    const { page, text, testedBy, output } = command;
    const name = `${text} (${page})`;
    const offbeat = offbeatCommand(text);
    if (offbeat !== undefined) {
      it(`has flags that its own parser takes: ${name}`, async () => {
        await readFlags(offbeat);
      });
    }
    if (command.needs !== undefined) {
      it(`needs what cannot be had here: ${name}`, () => {
        assert(
          needs.some((thing) => thing.test(command.needs!)),
          command.needs,
        );
      });
    } else if (testedBy.length > 0) {
      it(`is tested elsewhere: ${name}`, async () => {
        const texts = await Promise.all(testedBy.map(read));
        const word = wordOf(text);
        assert(
          texts.some((test) => test.includes(word)),
          `${testedBy.join(', ')} never says ${word}`,
        );
      });
    } else {
      const skip = text.startsWith('kubectl ') && typeof kubectl === 'string' && kubectl;
      it(`works: ${name}`, { skip }, async () => {
        const result = await terminal.run(text);
        if (output === undefined) assert.equal(result.code, 0, `${remedy}\n${result.output}`);
        else assert.equal(result.output, output.trim());
      });
    }
  }
});

const remedy =
  'a command that cannot be run here says behind it "# needs a cluster", or above its block ' +
  '"<!-- tested by: test/… -->"; see test/docs/pages.ts';

const read = (path: string) => readFile(join(packageRoot, path), 'utf8');

/** Pages repeat commands, and a translation has those of its original. */
function onceEach(commands: readonly Command[]): Command[] {
  const first = new Map<string, Command>();
  for (const command of commands) {
    if (!first.has(command.text)) first.set(command.text, command);
  }
  return [...first.values()];
}

/** What a test of a command must mention: the script, or the command behind `offbeat`. */
function wordOf(line: string): string {
  const offbeat = offbeatCommand(line);
  if (offbeat !== undefined) return offbeat.name === 'up' ? 'Up' : offbeat.name;
  const words = line.split(/\s+/).filter((word) => !/^[A-Z_]+=/.test(word));
  if (words[0] === 'curl') return words[1]!.replace(/^[^/]*/, ''); // the route
  const word = words[0] === 'npm' ? words[words[1] === 'run' ? 2 : 1]! : words[0]!;
  return word.replace(/^test:/, '');
}
