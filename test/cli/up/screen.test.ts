import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createScreen, plainStatusEveryMs } from '../../../cli/up/screen.js';

describe('the screen', () => {
  const screenOn = (
    stream: { isTTY?: boolean; columns?: number },
    env: Record<string, string> = {},
  ) => {
    const written: string[] = [];
    const clock = { now: 0 };
    const write = (text: string) => written.push(text) > 0;
    return {
      written,
      clock,
      screen: createScreen({ stream: Object.assign(stream, { write }), env, now: () => clock.now }),
    };
  };

  it('the screen rewrites one line on a terminal and keeps it below the permanent lines', () => {
    const { screen, written } = screenOn({ isTTY: true, columns: 10 }, { NO_COLOR: '1' });
    screen.status('step 1 of many');
    screen.note('evaluated');
    screen.status('');
    assert.deepEqual(written, ['\r\x1b[2Kstep 1 of', '\r\x1b[2Kevaluated\nstep 1 of', '\r\x1b[2K']);
  });

  it('the screen assumes 80 columns if the terminal does not know its width', () => {
    const { screen, written } = screenOn({ isTTY: true, columns: 0 }, { NO_COLOR: '1' });
    screen.status('x'.repeat(100));
    assert.deepEqual(written, [`\r\x1b[2K${'x'.repeat(79)}`]);
  });

  it('the screen fits its line to a terminal whose width has changed', () => {
    const stream = { isTTY: true, columns: 20 };
    const { screen, written } = screenOn(stream, { NO_COLOR: '1' });
    assert.equal(screen.columns(), 20);
    screen.status('step 1 of many');
    stream.columns = 7;
    screen.note('evaluated');
    assert.equal(written.at(-1), '\r\x1b[2Kevaluated\nstep 1');
    assert.equal(screenOn({}).screen.columns(), Infinity);
  });

  it('the screen uses colors only on a terminal, and never with NO_COLOR', () => {
    const colored = (stream: { isTTY?: boolean }, env: Record<string, string> = {}) => {
      const { screen, written } = screenOn(stream, env);
      screen.warn('careful');
      return written.join('') !== 'careful\n';
    };
    assert(colored({ isTTY: true }));
    assert(!colored({ isTTY: true }, { NO_COLOR: '1' }));
    assert(!colored({ isTTY: true }, { TERM: 'dumb' }));
    assert(!colored({}));
  });

  it('the screen writes plain lines to anything but a terminal, at a limited rate', () => {
    const { screen, written, clock } = screenOn({});
    screen.status('step 1');
    screen.status('step 2');
    clock.now = plainStatusEveryMs;
    screen.status('step 3');
    screen.status('');
    assert.deepEqual(written, ['step 1\n', 'step 3\n']);
  });
});
