import assert from 'node:assert/strict';
import { access, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadSchema } from '../../deploy/local/load-schema.js';
import { loadUpConfig } from '../../deploy/local/up/up-config.js';
import { packageRoot } from '../../shared/package-root.js';
import { HubServer } from '../support/hub-server.js';
import { runOffbeat } from '../support/offbeat.js';
import { ServiceProcess } from '../support/service-process.js';

const page = await readFile(join(packageRoot, 'docs/tasks.md'), 'utf8');
const blocks = (language: string) =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map(
    ([, text]) => text!,
  );
const commands = blocks('sh').flatMap((block) => block.trim().split('\n'));

describe('the page on tasks', { timeout: 300_000 }, () => {
  let folder: string;
  let hub: HubServer;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-docs-'));
    for (const [name, language] of [
      ['problems.csv', 'csv'],
      ['mine.json', 'json'],
      ['questions.jsonl', 'jsonl'],
    ] as const) {
      assert(page.includes(`\`${name}\`:\n\n\`\`\`${language}\n`), name);
      await writeFile(join(folder, name), blocks(language)[0]!);
    }
    const golden = join(packageRoot, 'test/shared/tasks/golden/snappy.parquet');
    hub = await HubServer.start({ 'data/train-00000-of-00001.parquet': await readFile(golden) });
  });
  after(async () => {
    await hub[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  for (const command of commands.filter((line) => line.startsWith('npx offbeat score-server'))) {
    it(`has a command that scores: ${command}`, async () => {
      const flags = command
        .split(' ')
        .slice(3)
        .map((word) => (/^\w+\.(csv|jsonl|json)$/.test(word) ? join(folder, word) : word));
      const env = { HF_ENDPOINT: hub.url, HF_TOKEN: '', OFFBEAT_DATASETS: folder };
      await using server = new ServiceProcess(
        'reward-service/score-server',
        [...flags, '--http-port', '0'],
        env,
      );
      const { httpPort } = await server.says(({ msg }) => msg === 'listening');
      const response = await fetch(`http://127.0.0.1:${String(httpPort)}/openapi.json`);
      assert.equal(response.status, 200);
      assert.equal(await server.stop('SIGTERM'), 0);
    });
  }

  for (const command of commands.filter((line) => line.startsWith('npm start'))) {
    it(`has a command whose settings go together: ${command}`, async () => {
      const learner = await loadSchema('learner');
      assert.doesNotThrow(() => loadUpConfig(learner, command.split(' ').slice(3), {}));
    });
  }

  it('has no other commands than these', () => {
    const known = /^(npx offbeat score-server|npm start --) /;
    assert.deepEqual(
      commands.filter((line) => !known.test(line)),
      [],
    );
    assert(commands.length >= 8);
  });

  const sessions = blocks('console').flatMap((block) => block.split(/^\$ /m).slice(1));
  for (const session of sessions) {
    const [command, ...output] = session.split('\n');
    it(`shows what is printed: ${command}`, async () => {
      const { out, err } = await runOffbeat(command!.split(' ').slice(2), folder);
      assert.deepEqual([out, err], [output.join('\n'), '']);
    });
  }

  it('names the files of a task as they are', async () => {
    const names = [...page.matchAll(/^\| `(\w+\.ts)`/gm)].map(([, name]) => name!);
    assert(names.length >= 6);
    for (const name of names) await access(join(packageRoot, 'shared/integer-answers', name));
  });
});
