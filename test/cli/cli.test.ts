import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { offbeatProgram } from '../../shared/base/package-root.js';

const services = ['actor', 'learner', 'reward-service', 'score-server', 'local-backend'];
const commands = [
  'up',
  'sft',
  'status',
  'doctor',
  'model',
  'eval',
  'export',
  'dashboard',
  'report',
  'dead-letters',
  'delete',
  'sweep',
  ...services,
  'solve',
  'nats-config',
  'tuft-cpu',
  'help',
];

async function offbeat(...args: string[]) {
  const child = spawn(process.execPath, [offbeatProgram, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const closed = once(child, 'close') as Promise<[number | null]>;
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), closed]);
  return { out, err, code };
}

/** The flags in a help text under which nothing but their default and variable stands. */
function unexplained(help: string): string[] {
  const entries = help.split(/^ {2}(?=--)/m).slice(1); // before the first stands the summary
  assert(entries.length > 0, help);
  return entries.filter((entry) => {
    const [, ...text] = entry.split(/\n {6}/); // what follows the flag, in lines that fit a terminal
    return !/^[^(].*\. \(/.test(text.join(' '));
  });
}

describe('the offbeat command', { timeout: 540_000 }, () => {
  it('the offbeat command lists its commands', async () => {
    for (const word of ['help', '--help']) {
      const { out, code } = await offbeat(word);
      assert.equal(code, 0);
      for (const command of commands) assert.match(out, new RegExp(`^  ${command} `, 'm'));
    }
  });

  it('the offbeat command refuses an unknown command, with the list of all', async () => {
    const { err, code } = await offbeat('frobnicate');
    assert.equal(code, 2);
    assert.equal(err, `unknown command frobnicate; one of ${commands.join(', ')} is expected\n`);
    assert.equal((await offbeat('actr')).err, 'unknown command actr; did you mean actor?\n');
    assert.match((await offbeat('UP')).err, /did you mean up\?/);
    assert.equal(
      (await offbeat()).err,
      `a command is missing; one of ${commands.join(', ')} is expected\n`,
    );
  });

  it('the offbeat command prints its version', async () => {
    for (const word of ['--version', '-v', 'version']) {
      const { out, code } = await offbeat(word);
      assert.equal(code, 0);
      assert.match(out, /^\d+\.\d+\.\d+\n$/);
    }
  });

  it('the offbeat command explains a command after help as with --help', async () => {
    const [help, flag] = [await offbeat('help', 'eval'), await offbeat('eval', '--help')];
    assert.deepEqual(help, flag);
    assert.match(help.out, /^offbeat eval: /);
    assert.deepEqual(
      (await offbeat('help', 'evl')).err,
      'unknown command evl; did you mean eval?\n',
    );
  });

  it('the offbeat command names itself in an error as it was called', async () => {
    assert.match((await offbeat('status', '--frob')).err, /^offbeat status cannot start:$/m);
  });

  it('the offbeat command refuses a word that is not a flag before it downloads anything', async () => {
    const { err, code } = await offbeat('tuft-cpu', 'frob');
    assert.deepEqual(
      [code, err],
      [2, 'offbeat tuft-cpu: frob is not a flag; --help lists the flags\n'],
    );
  });

  const flagless = ['nats-config', 'tuft-cpu', 'help'];
  for (const command of commands.filter((name) => !flagless.includes(name))) {
    it(`the help of offbeat ${command} explains each flag in a sentence`, async () => {
      const { out } = await offbeat(command, '--help');
      assert.deepEqual(unexplained(out), []);
      assert.deepEqual(
        out.split('\n').filter((line) => line.length > 120),
        [],
      );
    });
  }

  for (const service of services) {
    it(`offbeat ${service} runs the service, with its help and its exit code`, async () => {
      const help = await offbeat(service, '--help');
      assert.equal(help.code, 0, help.err);
      assert.match(
        help.out,
        new RegExp(`^offbeat ${service}: [^]*--health-port N\n[^]*_HEALTH_PORT`),
      );

      const { err, code } = await offbeat(service, '--frob');
      assert.equal(code, 2);
      assert.match(err, new RegExp(`^${service} cannot start:\n  - --frob is not a flag`, 'm'));
    });
  }
});
