import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { lastWords, logTail } from '../../cli/processes/log-tail.js';
import { createRunFolder, removeIfNotBegun, runNameAt, runsIn } from '../../cli/run-folder.js';
import { UserError } from '../../shared/base/errors.js';
import { RunName } from '../../shared/wire/run-name.js';

describe('the files of a run', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-files-'));
  });
  after(() => rm(folder, { recursive: true }));

  it('the files of a run are in a separate folder, which is never used twice', async () => {
    const { folder: made, lock } = await createRunFolder(join(folder, 'runs'), 'first');
    assert.deepEqual((await readdir(made.path)).sort(), ['.lock', 'checkpoints', 'logs', 'nats']);
    await assert.rejects(
      createRunFolder(join(folder, 'runs'), 'first'),
      /process \d+ \(offbeat up\) is using/,
    );
    lock[Symbol.dispose]();
    await writeFile(join(made.path, 'metrics.jsonl'), '{}\n'); // by its learner: the run has begun
    await assert.rejects(createRunFolder(join(folder, 'runs'), 'first'), (error) => {
      assert(error instanceof UserError);
      assert.match(
        error.message,
        /the run first already exists in .*; add --resume .*, choose another name with --run, or delete/,
      );
      return true;
    });
  });

  it('a run may reuse the name of a start that failed before its run began', async () => {
    const runs = join(folder, 'others');
    const start = async () => {
      const { folder: made, lock } = await createRunFolder(runs, 'late');
      assert(!existsSync(made.summary));
      await writeFile(made.summary, '{}'); // by a learner that was stopped before its first step
      await writeFile(made.launch, '{}');
      await writeFile(join(made.logs, 'learner.log'), 'no backend');
      await writeFile(join(made.path, '.room'), ''); // it was killed while it looked for room on the disk
      lock[Symbol.dispose]();
      return made;
    };
    await removeIfNotBegun(await start(), { keepLogs: true });
    const again = await start();
    assert.deepEqual(await readdir(again.logs), ['learner.log']);
    await removeIfNotBegun(again, { keepLogs: false });
    assert.deepEqual(await readdir(runs), []);

    const states = join((await start()).checkpoints, 'some-run', 'weights');
    await mkdir(join(states, 'state-000000'), { recursive: true }); // nothing is trained
    await start();
    await mkdir(join(states, 'state-000001'), { recursive: true });
    await assert.rejects(createRunFolder(runs, 'late'), /already exists/);
    await mkdir(join(runs, 'of-a-user', 'logs', 'mine'), { recursive: true });
    await assert.rejects(createRunFolder(runs, 'of-a-user'), /already exists/);
  });

  it('a folder that a user has made for a run stays if the run never begins', async () => {
    const runs = join(folder, 'made');
    await mkdir(join(runs, 'mine'), { recursive: true });
    const { folder: made, lock, isUsers } = await createRunFolder(runs, 'mine');
    assert(isUsers);
    lock[Symbol.dispose]();
    await removeIfNotBegun(made, { keepLogs: true, isUsers });
    assert.deepEqual(await readdir(made.path), []);
    const again = await createRunFolder(runs, 'new');
    again.lock[Symbol.dispose]();
    assert(!again.isUsers);
  });

  it('a folder with files that no start has written is refused, and they stay', async () => {
    const runs = join(folder, 'foreign');
    await mkdir(join(runs, 'mine'), { recursive: true });
    await writeFile(join(runs, 'mine', 'config.json'), '{"seed":3}'); // for --config
    await assert.rejects(
      createRunFolder(runs, 'mine'),
      /already exists, with files that no start has written; .*--run, or move them$/,
    );
    assert.deepEqual(await readdir(join(runs, 'mine')), ['config.json']);
  });

  it('a run that has ended by itself before its first step keeps its name', async () => {
    const runs = join(folder, 'ended');
    const { folder: made, lock } = await createRunFolder(runs, 'early');
    lock[Symbol.dispose]();
    await writeFile(made.launch, '{}');
    await writeFile(made.summary, '{"reason":"stopped"}');
    (await createRunFolder(runs, 'early')).lock[Symbol.dispose]();
    await writeFile(made.summary, '{"reason":"max_minutes"}');
    await assert.rejects(createRunFolder(runs, 'early'), /already exists/);
  });

  it('a run needs a writable folder', async () => {
    const file = join(folder, 'file');
    await writeFile(file, '');
    for (const runs of [file, join(file, 'runs')]) {
      await assert.rejects(createRunFolder(runs, 'x'), (error) => {
        assert(error instanceof UserError);
        assert.match(
          error.message,
          /^no run can be kept in \/.* \(.*\); name a folder .*--runs-dir$/,
        );
        return true;
      });
    }
  });

  it('a run may be a link to its folder, but not to a file or to nothing', async () => {
    const runs = join(folder, 'linked');
    await mkdir(join(runs, 'plain'), { recursive: true });
    await mkdir(join(folder, 'other-disk'));
    await writeFile(join(runs, 'notes.txt'), '');
    await symlink(join(folder, 'other-disk'), join(runs, 'moved'));
    await symlink('notes.txt', join(runs, 'text'));
    await symlink('nowhere', join(runs, 'broken'));
    assert.deepEqual((await runsIn(runs)).sort(), ['moved', 'plain']);
    assert.deepEqual(await runsIn(join(runs, 'none')), []);
  });

  it('a run without a name is named by its start time', () => {
    const name = runNameAt(new Date(2026, 0, 2, 3, 4, 5));
    assert.equal(name, '20260102-030405');
    assert(RunName.safeParse(name).success);
  });

  it('the last lines of a log are printed as plain text', async () => {
    const path = join(folder, 'log');
    const entry = {
      level: 40,
      time: '2026-11-21T01:02:03.000Z',
      service: 'actor',
      pid: 1,
      msg: 'slow',
      ms: 7,
    };
    await writeFile(
      path,
      ['cut off', JSON.stringify(entry), 'Segmentation fault', '', '[1]'].join('\n'),
    );
    assert.deepEqual(await logTail(path, 3), [
      '01:02:03 warn slow ms=7',
      'Segmentation fault',
      '[1]',
    ]);
    assert.deepEqual(await logTail(join(folder, 'none'), 3), []);
  });

  it('the plain error of a service is printed once', async () => {
    const path = join(folder, 'twice');
    const entry = { level: 60, time: '2026-11-21T01:02:03.000Z', msg: 'no such port' };
    await writeFile(path, `${JSON.stringify(entry)}\nno such port\n`);
    assert.deepEqual(await logTail(path, 5), ['01:02:03 fatal no such port']);
    const long = { ...entry, msg: 'two things are wrong:\n  - this\n  - that' };
    await writeFile(path, `${JSON.stringify(long)}\n${long.msg}\n`);
    assert.deepEqual(await logTail(path, 5), [
      ...['01:02:03 fatal two things are wrong:', '  - this', '  - that'],
    ]);
  });

  it('a log is printed without the lines of earlier processes, and repeated lines are counted', async () => {
    const path = join(folder, 'repeated');
    const entry = (seconds: number, msg: string, level = 30) =>
      `${JSON.stringify({ level, time: `2026-11-21T01:02:${seconds}.000Z`, msg })}\n`;
    const before = entry(10, 'ended');
    const retries = Array.from({ length: 17 }, (_, i) => entry(20 + i, 'trying again')).join('');
    const end = `${entry(40, 'the weights are broken', 60)}the weights are broken\n`;
    await writeFile(path, before + retries + end);
    assert.deepEqual(await logTail(path, 25, before.length), [
      '01:02:36 info trying again (17 times)',
      '01:02:40 fatal the weights are broken',
    ]);
    assert.equal(await lastWords(path, before.length), 'the weights are broken');
    assert.equal(await lastWords(join(folder, 'none')), '');
    await writeFile(path, before + retries + end + entry(41, 'connection closed'));
    assert.equal(await lastWords(path, before.length), 'the weights are broken');
  });
});
