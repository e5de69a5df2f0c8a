import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { lastLine, runCommand } from '../../cli/run-command.js';

describe('a short command', () => {
  const limits = { timeoutMs: 20_000 };

  it('a short command returns its code and what it printed', async () => {
    const script = 'console.log("out"); console.error("err"); process.exitCode = 3';
    const { code, output } = await runCommand(process.execPath, ['-e', script], limits);
    assert.equal(code, 3);
    assert.deepEqual(output.split('\n').sort(), ['err', 'out']);
  });

  it('a short command that takes too long is ended and has no code', async () => {
    const script = 'setInterval(() => {}, 1000)';
    const { code } = await runCommand(process.execPath, ['-e', script], { timeoutMs: 100 });
    assert.equal(code, undefined);
  });

  it('a command that does not exist says so, and nothing keeps this process alive until its time is over', async () => {
    const timers = () =>
      process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
    const before = timers();
    const { code, output } = await runCommand('/does/not/exist', [], limits);
    assert.equal(code, undefined);
    assert.match(output, /ENOENT/);
    assert.equal(timers(), before);
  });
});

describe('the last line of an output', () => {
  it('the last line of an output is without the blanks around it, and without an output says so', () => {
    assert.equal(lastLine('first\n  last \n\n'), 'last');
    assert.equal(lastLine(' \n'), 'it ended without output');
  });
});
