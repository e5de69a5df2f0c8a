import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { runCommand } from '../../deploy/local/run-command.js';
import { packageRoot } from '../../shared/package-root.js';
import { kustomize } from '../support/kubernetes.js';
import { runOffbeat } from '../support/offbeat.js';

const pages = ['kubernetes', 'monitoring'];
const read = (path: string) => readFile(join(packageRoot, path), 'utf8');

describe('the commands of the pages on clusters', { timeout: 120_000 }, async () => {
  const texts = await Promise.all(pages.map((page) => read(`docs/${page}.md`)));
  const commands = texts.flatMap(commandsIn);
  const { scripts } = JSON.parse(await read('package.json')) as { scripts: object };
  const kubectl = await kustomize();

  it('are there', () => {
    assert(commands.length >= 6, commands.join('\n'));
  });

  for (const command of commands) {
    const words = command.replace(/ #.*/, '').split(/\s+/);
    const skip = words[0] === 'kubectl' && typeof kubectl === 'string' && kubectl;
    it(`work, or say what they need: ${command}`, { skip }, async () => {
      if (/# (needs|on Debian)/.test(command)) return;
      if (words[0] === 'npm') {
        // What these start has tests of its own.
        assert(words[2]! in scripts, `package.json has no script ${words[2]}`);
      } else if (words[0] === 'npx') {
        const folder = await mkdtemp(join(tmpdir(), 'offbeat-docs-'));
        try {
          const { code, err } = await runOffbeat(words.slice(2), folder);
          assert.equal(code, 0, err);
        } finally {
          await rm(folder, { recursive: true });
        }
      } else {
        const { code, output } = await runCommand(words[0]!, words.slice(1), {
          cwd: packageRoot,
          timeoutMs: 60_000,
        });
        assert.equal(code, 0, output);
      }
    });
  }

  it('say of each alert what to do', async () => {
    const { groups } = parse(await read('deploy/prometheus/alerts.yaml')) as {
      groups: { rules: { alert: string }[] }[];
    };
    const alerts = groups.flatMap(({ rules }) => rules.map(({ alert }) => alert));
    const explained = [...texts[1]!.matchAll(/^\| `(Offbeat\w+)` /gm)].map(([, name]) => name);
    assert.deepEqual(explained, alerts);
  });
});

/** The lines of its shell blocks, continued ones joined; each with what the block says it needs. */
function commandsIn(page: string): string[] {
  return [...page.matchAll(/^```sh\n([^]*?)^```/gm)].flatMap(([, block]) => {
    const lines = block!
      .replace(/\\\n */g, '')
      .trim()
      .split('\n');
    const need = lines[0]!.startsWith('# ') ? ` ${lines.shift()!}` : '';
    return lines.map((line) => line + need);
  });
}
