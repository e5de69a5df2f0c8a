import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { z } from 'zod';
import { flagsOf } from '../../../shared/service/config.js';
import { UserError } from '../../../shared/base/errors.js';
import { refuseFlagsKeptByNpm } from '../../../shared/service/npm-flags.js';
import { complaintOf } from '../../support/complaint.js';

const flags = flagsOf(
  z.object({
    run: z.string(),
    maxSteps: z.coerce.number(),
    learningRate: z.coerce.number(),
    apiKey: z.string(),
    progress: z.string(),
    resume: z.boolean(),
    json: z.boolean(),
  }).shape,
);

const check = (env: Record<string, string>, argv: readonly string[] = [], script = 'start') => {
  refuseFlagsKeptByNpm('start', flags, argv, { npm_lifecycle_event: script, ...env });
};
const complaint = (env: Record<string, string>, argv?: readonly string[]) =>
  complaintOf(() => {
    check(env, argv);
  });

describe('flags that npm kept because -- was missing before them', () => {
  let folder: string;
  before(async () => (folder = await mkdtemp(join(tmpdir(), 'offbeat-npm-'))));
  after(() => rm(folder, { recursive: true }));

  it('flags kept by npm are refused with the command to type', () => {
    assert.equal(
      complaint({ npm_config_max_steps: '2', npm_config_resume: 'true' }, ['--run', 'a b']),
      'npm kept --max-steps, --resume for itself: flags of offbeat come after --. Nothing was started; type\n' +
        "  npm start -- --run 'a b' --max-steps=2 --resume",
    );
    assert.match(complaint({ npm_config_json: '' }), /type\n {2}npm start -- --no-json$/);
  });

  it('flags kept by npm get back the value that npm left among the words, if the assignment is clear', () => {
    assert.match(complaint({ npm_config_run: 'true' }, ['x']), /type\n {2}npm start -- --run=x$/);
    assert.match(
      complaint({ npm_config_run: 'true', npm_config_max_steps: 'true' }, ['x', '2', '--json']),
      /type\n {2}npm start -- --json --run=… --max-steps=…\nwith the values x, 2 in their places$/,
    );
  });

  it('flags kept by npm are recognized without their dashes and with a wrong letter', () => {
    assert.match(complaint({ npm_config_maxsteps: '2' }), /-- --max-steps=2$/);
    assert.match(complaint({ npm_config_max_step: '2' }), /-- --max-steps=2$/);
  });

  it('flags kept by npm are named without a secret', () => {
    assert.match(complaint({ npm_config_api_key: 'tml-secret' }), /-- --api-key=…$/);
  });

  it('flags that npm sets by itself, settings of npm, and other scripts are left alone', async () => {
    const own = { npm_config_cache: '/c', npm_config_nodedir: '/usr', npm_config_progress: 'true' };
    check({ ...own, npm_config_umask: '18', npm_config_user_agent: 'npm/11' });
    check({ npm_config_rum: 'a' }); // one letter from --run, but in a short word that says little
    const npmrc = join(folder, 'npmrc');
    await writeFile(npmrc, 'audit=false\njson = true\n');
    check({ npm_config_json: 'true', npm_config_userconfig: npmrc });
    check({ npm_config_max_steps: '2' }, [], 'test');
    assert.throws(() => {
      check({ npm_config_json: 'true' });
    }, UserError);
  });

  it('flags kept by npm stop a script before anything starts, with exit code 2, in every npm version', async () => {
    const bootstrap = new URL('../../../../cli/bootstrap.mjs', import.meta.url);
    const manifest = {
      name: 'x',
      version: '1.0.0',
      scripts: Object.fromEntries(
        ['start', 'sweep', 'test:chaos'].map((name) => [
          name,
          `exec node ${bootstrap.pathname} ${name}`,
        ]),
      ),
    };
    await writeFile(join(folder, 'package.json'), JSON.stringify(manifest));
    const npm = (...words: string[]) =>
      new Promise<{ code: unknown; err: string }>((resolve) => {
        const env = { ...process.env, npm_config_cache: folder };
        const options = { cwd: folder, env, timeout: 120_000 };
        execFile('npm', words, options, (error, _out, err) => {
          resolve({ code: error?.code, err });
        });
      });
    const [start, sweep, chaos] = [
      await npm('start', '--max-steps=2', '--runs-dir=none'),
      await npm('run', 'sweep', 'file.json', '--dry-run'),
      await npm('run', 'test:chaos', '--rounds=1'),
    ];
    assert.deepEqual([start.code, sweep.code, chaos.code], [2, 2, 2]);
    assert.match(start.err, /^ {2}npm start -- .*--max-steps=2/m);
    assert.match(sweep.err, /^ {2}npm run sweep -- file\.json --dry-run$/m);
    assert.match(chaos.err, /^ {2}npm run test:chaos -- --rounds=1$/m);
  });
});
