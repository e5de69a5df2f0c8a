import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { problemOf } from '../../shared/tasks/countdown/problem.js';
import { CountdownPrompt } from '../../shared/tasks/countdown/spec.js';
import { countdown } from '../../shared/tasks/countdown/task.js';
import { countdownSpec } from '../support/countdown-task.js';
import { chatModel } from '../support/chat-model.js';
import { HubServer } from '../support/hub-server.js';
import { parquetFile } from '../support/parquet-writer.js';
import { ServiceProcess } from '../support/service-process.js';
import { UpProcess } from '../support/up-process.js';
import { commandsOf, filesOf, isRunBesideHub, readPages } from './pages.js';

const page = (await readPages()).find(({ path }) => path === 'docs/tasks.md')!;
const commands = commandsOf(page).filter(isRunBesideHub);

describe('the page on tasks', { timeout: 300_000 }, () => {
  let folder: string;
  let hub: HubServer;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-docs-'));
    const files = filesOf(page);
    assert.deepEqual(
      files.map(({ name }) => name),
      ['problems.csv', 'mine.json', 'questions.jsonl'],
    );
    for (const { name, text } of files) await writeFile(join(folder, name), text);
    const golden = join(packageRoot, 'test/shared/tasks/golden/snappy.parquet');
    hub = await HubServer.start({ 'data/train-00000-of-00001.parquet': await readFile(golden) });
  });
  after(async () => {
    await hub[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  for (const { text: command } of commands) {
    it(`a command of docs/tasks.md starts a score server: ${command}`, async () => {
      const flags = command
        .split(' ')
        .slice(3)
        .map((word) => (/^\w+\.(csv|jsonl|json)$/.test(word) ? join(folder, word) : word));
      const env = { HF_ENDPOINT: hub.url, HF_TOKEN: '', OFFBEAT_DATASETS: folder };
      await using server = new ServiceProcess('score-server', [...flags, '--http-port', '0'], env);
      const { httpPort } = await server.says(({ msg }) => msg === 'listening');
      const response = await fetch(`http://127.0.0.1:${String(httpPort)}/openapi.json`);
      assert.equal(response.status, 200);
      assert.equal(await server.stop('SIGTERM'), 0);
    });
  }

  it('the run of docs/tasks.md on a dataset of the hub fetches it and trains, with a model that reads words', async () => {
    const { text } = commandsOf(page).find(({ text }) => /^npm start .*Jiayi-Pan/.test(text))!;
    const flags = text.replace('npm start -- ', '').split(' ');
    const rows = Array.from({ length: 600 }, (_, i) => [i + 1, (i % 7) + 1, 3]);
    const target = rows.map((nums) => nums.reduce((sum, value) => sum + value));
    const file = { 'data/train-00000-of-00001.parquet': parquetFile({ target, nums: rows }) };
    await using full = await HubServer.start(file);
    await using model = await chatModel();
    flags[flags.indexOf('--model-dir') + 1] = model.path;
    const few =
      '--max-steps=1 --groups-per-batch=2 --group-size=4 --num-minibatches=1 --lora-rank=2 --zero-variance=train ' +
      '--max-tokens=16 --eval-problems=2 --eval-samples=1 --actors=1 --json'; // a random model solves nothing
    const env = { HF_ENDPOINT: full.url, HF_TOKEN: '', OFFBEAT_DATASETS: join(folder, 'fetched') };
    await using up = await UpProcess.start([...flags, ...few.split(' ')], undefined, env);
    assert.equal(await up.ended(), 0, up.err);
    assert.equal(Summary.parse(JSON.parse(up.out)).steps, 1);
    const fetched = full.asked.filter((path) => path.includes('.parquet'));
    assert.equal(fetched.length, 1, String(fetched)); // by one process, for all
  });

  it('the template of docs/tasks.md gives reward 1 to a right answer, as a model writes it after the prompt', () => {
    const { text } = filesOf(page).find(({ name }) => name === 'mine.json')!;
    const prompt = CountdownPrompt.parse(JSON.parse(text));
    const task = countdown.open(countdownSpec({ prompt }));
    const problem = problemOf([3, 7, 21], 84);
    const solution = task.solution!(problem) as string;
    assert.equal(solution, '(21+7)*3]');
    for (const completion of [solution, '(7-3)*21]', '(7-3)*21 = 84]']) {
      assert.equal(task.score(problem, completion).exactReward, '1', completion);
    }
    assert.equal(task.score(problem, '7*21-3]').reason, 'wrong_value');
  });

  it('the commands of docs/tasks.md name a model that reads words where the prompt has words', () => {
    const runs = commandsOf(page).filter(({ text }) => text.startsWith('npm start'));

    const inWords = runs.filter(({ text }) => /--prompt-style (?!compact)/.test(text));
    assert.equal(inWords.length, 2);
    for (const { text } of inWords) assert.match(text, /--model-dir /);
  });

  it('docs/tasks.md names the files of a task', async () => {
    const names = [...page.text.matchAll(/^\| `(\w+\.ts)`/gm)].map(([, name]) => name!);
    const files = await readdir(join(packageRoot, 'shared/tasks/integer-answers'));
    assert.deepEqual(names.sort(), files.sort());
  });
});
