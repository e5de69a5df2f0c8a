import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { UserError } from '../../../../shared/base/errors.js';
import { readExamples } from '../../../../shared/tasks/examples/example-file.js';
import type { Example } from '../../../../shared/tasks/examples/example.js';
import { isExample, openExamples } from '../../../../shared/tasks/examples/training-examples.js';
import { countdown } from '../../../../shared/tasks/countdown/task.js';
import { chatTokenizer } from '../../../support/chatml.js';
import { countdownSpec } from '../../../support/countdown-task.js';

describe('a file of examples', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-examples-'));
  after(() => rm(folder, { recursive: true }));
  const tokenizer = { ...chatTokenizer, unknownTokenId: undefined as number | undefined };
  const reading = { tokenizer, stop: [], maxPositions: 40 };
  const read = async (lines: readonly unknown[], more: Partial<typeof reading> = {}) => {
    const path = join(folder, 'examples.jsonl');
    const text = (line: unknown) => (typeof line === 'string' ? line : JSON.stringify(line));
    await writeFile(path, lines.map((line) => `${text(line)}\n`).join(''));
    return readExamples(path, { ...reading, ...more });
  };
  const good = { prompt: 'ab', answer: 'c' };
  const chat = (...roles: string[]) => ({
    messages: roles.map((role) => ({ role, content: 'x' })),
  });

  it('each line is an example, and blank lines and other keys are not', async () => {
    const { all } = await read([good, '', { ...chat('user', 'assistant'), id: 7 }]);
    assert.deepEqual(
      all.map(({ example }) => example.tokens.length),
      [4, 22],
    );
  });

  it('a file of examples may begin with a byte order mark', async () => {
    const { all, digest } = await read([`\ufeff${JSON.stringify(good)}`, good]);
    assert.equal(all.length, 2);
    assert.equal(digest, (await read([good, good])).digest);
  });

  it('the digest depends on every token and on what is trained', async () => {
    const digestOf = async (...lines: unknown[]) => (await read(lines)).digest;
    const digest = await digestOf(good);
    assert.equal(await digestOf({ ...good, id: 1 }), digest);
    assert.notEqual(await digestOf({ prompt: 'ab', answer: 'd' }), digest);
    assert.notEqual(await digestOf({ prompt: 'a', answer: 'bc' }), digest);
  });

  const wrong: [line: unknown, says: RegExp][] = [
    ['{"prompt"', /line 2: .*JSON/],
    [[1], /line 2: .*an object/],
    [{}, /line 2: prompt: it is missing, and so are messages/],
    [{ prompt: 'a' }, /line 2: answer: it is missing/],
    [{ prompt: 'a', answer: '' }, /line 2: answer is "": expected some text/],
    [{ ...good, ...chat('user', 'assistant') }, /line 2: messages: give either/],
    [chat('user'), /line 2: messages: the last message must be of the assistant/],
    [chat('user', 'assistant', 'assistant'), /line 2: messages\.2: .* of the user/],
    [chat('assistant'), /line 2: messages\.0: .* of the user/],
    [
      chat('tool', 'assistant'),
      /line 2: messages\.0\.role is "tool": expected one of system, user/,
    ],
    [{ messages: [] }, /line 2: messages: the last message/],
    [{ prompt: 'a'.repeat(39), answer: 'b' }, /line 2: it has 41 tokens, .* can read 40/],
  ];
  for (const [line, says] of wrong) {
    it(`a file of examples is refused with the line of ${JSON.stringify(line).slice(0, 60)}`, async () => {
      await assert.rejects(
        read([good, line, good]),
        (error) => error instanceof UserError && says.test(error.message),
      );
    });
  }

  it('a refusal shows both forms of a line', async () => {
    await assert.rejects(read([{}]), /like \{"prompt":.*\} or \{"messages":\[\{"role":"user"/);
  });

  it('a character without a token is refused', async () => {
    const unknownTokenId = 'é'.codePointAt(0)!;
    const lines = [good, { prompt: 'é', answer: 'b' }];
    const lacking = { tokenizer: { ...tokenizer, unknownTokenId } };
    await assert.rejects(read(lines, lacking), /line 2: .*no token/);
  });

  it('a file without examples, of another kind or that does not exist is refused', async () => {
    await assert.rejects(read([]), /has no example/);
    await assert.rejects(readExamples('examples.csv', reading), /neither solver nor .*\.jsonl/);
    await assert.rejects(readExamples(join(folder, 'no.jsonl'), reading), /cannot read/);
  });

  const open = async (count: number, heldOut: number | undefined, seed = 0) => {
    const path = join(folder, 'counted.jsonl');
    const lines = Array.from({ length: count }, (_, i) =>
      JSON.stringify({ prompt: 'a', answer: String.fromCharCode(1_000 + i) }),
    );
    await writeFile(path, lines.join('\n'));
    const task = countdown.open(countdownSpec());
    const dataset = await task.load();
    const source = { ...reading, task, dataset, maxTokens: 20, heldOut, seed };
    const { train, heldOut: measured } = await openExamples(path, source);
    const trained = Array.from({ length: train.size }, (_, i) => train.at(i)).filter(isExample);
    const idsOf = (examples: readonly Example[]) =>
      examples.map(({ tokens }) => tokens[1]! - 1_000);
    return { train: idsOf(trained), heldOut: idsOf(measured) };
  };

  it('every line is either trained or held out, by the seed', async () => {
    const { train, heldOut } = await open(60, undefined);
    assert.deepEqual([train.length, heldOut.length], [57, 3]);
    const all = [...train, ...heldOut].sort((a, b) => a - b);
    assert.deepEqual(
      all,
      Array.from({ length: 60 }, (_, i) => i),
    );
    assert.deepEqual(await open(60, undefined), { train, heldOut });
    assert.notDeepEqual((await open(60, undefined, 1)).heldOut, heldOut);
    assert.equal((await open(60, 0)).train.length, 60);
    await assert.rejects(open(4, 4), /--held-out-examples 4 leaves none of the 4/);
  });
});
