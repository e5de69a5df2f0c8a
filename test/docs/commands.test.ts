import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { kustomize } from '../support/kubernetes.js';
import { offbeatCommand, readFlags } from './flags.js';
import { commandsOf, filesOf, isRunBesideHub, readPages, type Command } from './pages.js';
import { Terminal } from './terminal.js';

/** What nobody has here; everything else is run, word for word or for fewer steps, or a test is named that does. */
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
    const { page, text, testedBy, doneOtherwiseBy, output } = command;
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
    } else if (isRunBesideHub(command)) {
      it(`is read from its page and run by another test: ${name}`, () => {
        assert.deepEqual(testedBy, ['test/docs/tasks.test.ts']);
      });
    } else if (doneOtherwiseBy.length > 0) {
      it(`is done otherwise, by files that are there: ${name}`, async () => {
        const texts = await Promise.all(doneOtherwiseBy.map(read));
        const word = wordOf(text);
        assert(
          texts.some((test) => test.includes(word)),
          `${doneOtherwiseBy.join(', ')} never says ${word}`,
        );
      });
    } else if (testedBy.length > 0) {
      it(`is run word for word elsewhere: ${name}`, async () => {
        const texts = await Promise.all(testedBy.map(read));
        assert(
          texts.some((test) => new RegExp(`${escaped(text)}(?![\\w-])`).test(test)),
          `${testedBy.join(', ')} never runs \`${text}\`; ${remedy}`,
        );
      });
    } else if (isServer(text)) {
      it(`serves until it is asked to stop: ${name}`, async () => {
        await terminal.serve(text);
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
  '"<!-- tested by: test/… -->" or "<!-- done otherwise by: test/… -->"; see test/docs/pages.ts';

/** Those that end when they are asked to. */
const isServer = (text: string) => /^npx offbeat (dashboard|score-server)\b/.test(text);

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

const read = (path: string) => readFile(join(packageRoot, path), 'utf8');

/** Pages repeat commands, and a translation has those of its original. */
function onceEach(commands: readonly Command[]): Command[] {
  const first = new Map<string, Command>();
  for (const command of commands) {
    if (!first.has(command.text)) first.set(command.text, command);
  }
  return [...first.values()];
}

/** What a test that does otherwise must mention: the script, or the command behind `offbeat`. */
function wordOf(line: string): string {
  const offbeat = offbeatCommand(line);
  if (offbeat !== undefined) return offbeat.name === 'up' ? 'Up' : offbeat.name;
  const words = line.split(/\s+/).filter((word) => !/^[A-Z_]+=/.test(word));
  if (words[0] === 'curl') return words[1]!.replace(/^[^/]*/, ''); // the route
  const word = words[0] === 'npm' ? words[words[1] === 'run' ? 2 : 1]! : words[0]!;
  return word.replace(/^test:/, '');
}
