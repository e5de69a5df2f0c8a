import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { writeSummary } from '../../../learner/report/summary.js';
import { silent } from '../../support/broker.js';

const wait = { log: silent, signal: new AbortController().signal };
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'offbeat-summary-'));
});
afterEach(() => rm(folder, { recursive: true }));
const path = () => join(folder, 'summary.json');
/** The reason in the file after a session has ended for `reason`. */
const reasonAfter = async (reason: string) => {
  await writeSummary(folder, { reason }, wait);
  return (JSON.parse(await readFile(path(), 'utf8')) as { reason: string }).reason;
};

describe('summary.json', () => {
  it('a session that was stopped before its first step leaves the summary of a finished run', async () => {
    await writeFile(path(), '{"reason":"max_steps"}');
    assert.equal(await reasonAfter('stopped'), 'max_steps');
  });

  it('a session that was stopped writes its summary where there is none', async () => {
    assert.equal(await reasonAfter('stopped'), 'stopped');
  });

  it('a session that ended by itself replaces the summary of an earlier one', async () => {
    await writeFile(path(), '{"reason":"stopped"}');
    assert.equal(await reasonAfter('max_steps'), 'max_steps');
  });
});
