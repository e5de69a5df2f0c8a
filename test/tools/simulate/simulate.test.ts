import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadSimulateConfig, simulateText } from '../../../tools/simulate/simulate.js';
import { expectedLongestFirst, tailFirst } from '../../../tools/simulate/ticket-order.js';
import { lognormalSeconds, Trace } from '../../../tools/simulate/trace.js';

describe('npm run simulate', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'simulate-'));
  });
  after(async () => {
    await rm(folder, { recursive: true });
  });
  const small = ['--steps', '20', '--bounds', '1', '--policies', 'wait,drop'];

  it('the program prints a row for what is attainable and one for each policy', async () => {
    const lines = (await simulateText(small, {})).trim().split('\n');
    assert.deepEqual(
      lines.slice(2).map((line) =>
        line
          .split('|')
          .slice(1, 3)
          .map((cell) => cell.trim()),
      ),
      [
        ['1', '(attainable)'],
        ['1', 'wait'],
        ['1', 'drop'],
      ],
    );
  });

  it('the program prints every figure as JSON, with the distributions of staleness', async () => {
    const [comparison] = JSON.parse(await simulateText([...small, '--json'], {})) as [
      { attainable: number; results: [{ stepsPerHour: number; groupStaleness: object }] },
    ];
    const [wait] = comparison.results;
    assert(wait.stepsPerHour > 0 && wait.stepsPerHour < comparison.attainable);
    assert.deepEqual(Object.keys(wait.groupStaleness), ['0', '1']);
    assert(!('trained' in wait));
  });

  it('the program draws from a file of measured answers', async () => {
    const path = join(folder, 'answers.txt');
    await writeFile(path, '2\n2.0\n');
    const [comparison] = JSON.parse(
      await simulateText([...small, '--json', '--answers', path], {}),
    ) as [{ results: [{ seconds: number }] }];
    assert.equal(comparison.results[0].seconds.toFixed(6), (2 + 20 * 3.4).toFixed(6));
  });

  it('a file with a line that is no time is refused with the line', async () => {
    const path = join(folder, 'wrong.txt');
    const refused = async (text: string, complaint: RegExp) => {
      await writeFile(path, text);
      await assert.rejects(simulateText([...small, '--answers', path], {}), complaint);
    };
    await refused('2\nthree\n', /wrong\.txt, line 2 is "three"; give the seconds of one answer/);
    await refused('2\n0\n', /line 2 is "0"/);
    await refused('2\n\n3', /line 2 is ""/);
    await refused('\n', /is empty/);
    await rm(path);
    await assert.rejects(simulateText([...small, '--answers', path], {}), /cannot read/);
  });

  it('settings that do not go together are refused with their names and a remedy', () => {
    const refused = (argv: string[], complaint: RegExp) => {
      assert.throws(() => loadSimulateConfig(argv, {}), complaint);
    };
    refused(['--num-minibatches', '3'], /--groups-per-batch 8 .* --num-minibatches 3 .* divisor/);
    refused(['--bounds', '2,,4'], /--bounds .* is "2,,4": expected whole numbers/);
    refused(['--policies', 'wiat'], /--policies .* expected one of oracle, wait, drop/);
  });

  it('the help names every policy', async () => {
    assert.match(
      await simulateText(['--help'], {}),
      /^ {2}just-in-time {3}wait; a quarter of a batch/m,
    );
  });
});

describe('orders of tickets', () => {
  const seconds = [5, 30, 10, 40, 20];
  const longestOf = (problem: number) => seconds[problem]!;

  it('the oracle has the groups that do not fit first, the longest before the others', () => {
    assert.deepEqual(tailFirst(5, longestOf, 15), [3, 1, 4, 0, 2]);
    assert.deepEqual(tailFirst(5, longestOf, 40), [0, 1, 2, 3, 4]);
  });

  it('the longest expected group is first among the next ones only', () => {
    assert.deepEqual(expectedLongestFirst(5, longestOf, 2), [1, 0, 3, 2, 4]);
    assert.deepEqual(expectedLongestFirst(5, longestOf, 9), [3, 1, 4, 2, 0]);
  });
});

describe('the trace of answers', () => {
  it('lognormal answers have the median and the spread that they were given', () => {
    const trace = new Trace(lognormalSeconds(2, 0.5), 0);
    const logs = trace
      .answersTo(0, 0, 20_000)
      .map((seconds) => Math.log(seconds / 2))
      .sort((a, b) => a - b);
    assert(Math.abs(logs[10_000]!) < 0.02);
    assert(Math.abs(logs[16_827]! - 0.5) < 0.02); // one deviation above it
  });

  it('the answers depend on seed, problem and attempt alone, and more of them begin with the same', () => {
    const trace = new Trace(lognormalSeconds(2, 1), 0);
    const other = new Trace(lognormalSeconds(2, 1), 1);
    const first = trace.answersTo(3, 0, 2);
    assert.deepEqual(trace.answersTo(3, 0, 4).slice(0, 2), first);
    for (const answers of [
      trace.answersTo(3, 1, 2),
      trace.answersTo(4, 0, 2),
      other.answersTo(3, 0, 2),
    ]) {
      assert.notDeepEqual(answers, first);
    }
  });
});
