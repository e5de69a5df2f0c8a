import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { isRunning } from '../support/processes.js';
import { until } from '../support/waiting.js';
import { Project } from './project.js';

describe('the npm scripts', { timeout: 60_000 }, () => {
  let project: Project;

  beforeEach(async () => {
    project = await Project.create();
    await project.write('cli/cli.ts', 'console.log(JSON.stringify(process.argv.slice(2)));');
  });
  afterEach(() => project[Symbol.asyncDispose]());

  const start = (args: string[], env: Record<string, string> = {}) =>
    spawn(process.execPath, ['cli/bootstrap.mjs', ...args], {
      cwd: project.root,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  async function run(args: string[], env: Record<string, string> = {}) {
    const child = start(args, env);
    const closed = once(child, 'close') as Promise<[number | null]>;
    const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), closed]);
    return { out, err, code };
  }

  it('an npm script compiles once, passes its arguments on, and prints nothing if all is up to date', async () => {
    const first = await run(['start', '--json', 'a b']);
    assert.deepEqual(first, {
      out: '["up","--json","a b"]\n',
      err: 'compiling (never done here)\n',
      code: 0,
    });
    assert.deepEqual(await run(['start']), { out: '["up"]\n', err: '', code: 0 });
  });

  it('an npm script recompiles changed sources and removes output whose source is gone', async () => {
    await project.write('cli/old.ts', '');
    await run(['start']);
    await rm(project.path('cli/old.ts'));
    await project.write('cli/cli.ts', 'console.log("new");');
    const { out, err } = await run(['start']);
    assert.deepEqual([out, err], ['new\n', 'compiling (the sources have changed)\n']);
    assert(!existsSync(project.path('dist/cli/old.js')));
  });

  it('an npm script prints the errors of the compiler and runs no program', async () => {
    await project.write('cli/bad.ts', '// type error');
    const { out, err, code } = await run(['start']);
    assert.deepEqual([out, code], ['', 1]);
    assert.match(err, /cli\/bad\.ts: a type error\nthe TypeScript compiler failed with code 2/);
  });

  it('an npm script installs with the npm settings of the user and prints the error of npm', async () => {
    await rm(project.path('node_modules/.package-lock.json'));
    await project.write('npm.js', 'console.log(process.argv.slice(2).join(" ")); process.exit(3);');
    const { err, code } = await run(['start'], { npm_execpath: project.path('npm.js') });
    assert.equal(code, 1);
    assert.match(err, /installing dependencies \(node_modules is missing or incomplete\)/);
    assert.match(err, /ci --include=dev --ignore-scripts .*\nnpm ci failed with code 3/);
  });

  it('an npm script has the exit code of its program and ends by the signal that ends it', async () => {
    await project.write('cli/cli.ts', 'process.exitCode = 7;');
    assert.equal((await run(['start'])).code, 7);

    await project.write('cli/cli.ts', 'console.log("up"); setInterval(() => {}, 1e6);');
    const child = start(['start']);
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    assert.deepEqual(await once(child, 'exit'), [null, 'SIGTERM']);
  });

  it('an npm script ends its program if npm was killed and cannot forward a signal', async () => {
    await project.write('cli/cli.ts', 'console.log(process.pid); setInterval(() => {}, 1e6);');
    const npm = `
      const { spawn } = require('node:child_process');
      const env = { ...process.env, npm_lifecycle_event: 'start' };
      spawn(process.execPath, ['cli/bootstrap.mjs', 'start'], { stdio: 'inherit', env });`;
    const child = spawn(process.execPath, ['--eval', npm], {
      cwd: project.root,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [pid] = (await once(child.stdout, 'data')) as [Buffer];
    child.kill('SIGKILL');
    await once(child.stdout, 'close'); // its last holder, the program, lets go of it as it ends
    await until(() => !isRunning(Number(pid)));
  });

  it('an npm script runs no program if npm ended because it could not write its first line', async () => {
    const { scripts } = JSON.parse(await readFile('package.json', 'utf8')) as {
      scripts: { start: string };
    };
    // The shell is there before its parent ends, and the program after it, as with npm > /dev/full.
    const npm = `
      const { spawn } = require('node:child_process');
      const env = { ...process.env, npm_lifecycle_event: 'start' };
      const stdio = ['inherit', 'pipe', 'inherit'];
      const shell = spawn('sh', ['-c', ${JSON.stringify(`echo; read _; ${scripts.start}`)}], { stdio, env });
      shell.stdout.once('data', () => process.exit(1));`;
    const child = spawn(process.execPath, ['--eval', npm], {
      cwd: project.root,
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    await once(child, 'exit');
    child.stdin.end('\n');
    assert.match(await text(child.stderr), /^npm has ended, so this command ends too/);
  });

  /** A script that runs `program`, and the compiled part of ours that finds a nats-server. */
  async function needNats(task: string, program: string, ensure: string): Promise<void> {
    await project.write(`test/${task}/main.ts`, program);
    await project.write(`dist/test/${task}/main.js`, program);
    await project.write('cli/nats-server/ensure.ts', ensure);
    await project.write('dist/cli/nats-server/ensure.js', ensure);
  }
  const ownServers = { chaos: 'test:chaos', elastic: 'test:elastic', compat: 'test:compat' };
  for (const [folder, task] of Object.entries({ ...ownServers, bench: 'bench' })) {
    it(`npm run ${task} gets the same nats-server as the tests`, async () => {
      await needNats(
        folder,
        'console.log(process.env.OFFBEAT_NATS_SERVER);',
        'export const ensureNatsServer = async () => ({ path: "/found/nats-server" });',
      );
      const { out, code } = await run([task], { OFFBEAT_NATS_SERVER: '' });
      assert.deepEqual([out, code], ['/found/nats-server\n', 0]);
    });
  }

  it('an npm script that needs nats-server runs no program without one and reports the reason', async () => {
    await needNats(
      'chaos',
      'console.log("ran");',
      'export const ensureNatsServer = async () => { throw new Error("no nats-server was found or downloaded"); };',
    );
    const { out, err, code } = await run(['test:chaos']);
    assert.deepEqual([out, code], ['', 1]);
    assert.match(err, /no nats-server was found or downloaded/);
  });

  it('an npm script refuses an unknown task, and lists the tasks if asked', async () => {
    const { err, code } = await run(['frob']);
    assert.equal(code, 1);
    assert.match(
      err,
      /unknown task frob; one of start, sweep, simulate, pretrain, mutate, docs, monitoring, bench, test:elastic, test:chaos, test:gpu, test:compat, test, build is expected/,
    );
    assert.match((await run(['bench'])).err, /bench has nothing to run yet/);
    const help = await run(['--help']);
    assert.deepEqual([help.code, help.err], [0, '']);
    assert.match(help.out, /^node cli\/bootstrap\.mjs TASK .* start, sweep, /);
  });

  it('two npm scripts that start at once prepare one after the other', async () => {
    const results = await Promise.all([run(['start']), run(['start'])]);
    assert.deepEqual(
      results.map(({ out, code }) => [out, code]),
      [
        ['["up"]\n', 0],
        ['["up"]\n', 0],
      ],
    );
    const compiled = results.filter(({ err }) => err.includes('compiling'));
    assert.equal(compiled.length, 1);
  });
});
