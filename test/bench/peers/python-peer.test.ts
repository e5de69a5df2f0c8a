import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { executable } from '../../cli/nats-server/fakes.js';
import { PythonPeer } from './python-peer.js';

describe('a peer in another process', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-peer-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  /** A shell script in the place of Python. */
  const start = async (script: string) =>
    PythonPeer.start(
      await executable(join(folder, 'python'), `#!/bin/sh\n${script}\n`),
      'decode.py',
      ['--model', 'm'],
      { threads: 2 },
    );

  it('each round is one line of its answers, after a first one that says that it is ready', async () => {
    await using peer = await start(
      'echo "{}"; while read -r line; do echo "{\\"count\\": $OMP_NUM_THREADS, \\"processor\\": 1, \\"wall\\": 3}"; done',
    );
    assert.deepEqual(await peer.round(), { count: 2, processor: 1, wall: 3 });
    assert.deepEqual(await peer.round(), { count: 2, processor: 1, wall: 3 });
  });

  it('a script that cannot run here is a UserError with its last line', async () => {
    const script =
      'echo Traceback >&2; echo "ModuleNotFoundError: No module named torch" >&2; exit 1';
    await assert.rejects(start(script), (error) => {
      assert(error instanceof UserError);
      assert.equal(error.message, 'decode.py: ModuleNotFoundError: No module named torch');
      return true;
    });
  });

  it('a script that dies without a word, as by a signal, is a UserError too', async () => {
    await assert.rejects(start('kill -9 $$'), UserError);
  });

  it('a round without a rate is refused', async () => {
    await using peer = await start(
      'echo "{}"; while read -r line; do echo "{\\"count\\": 0, \\"processor\\": 1, \\"wall\\": 3}"; done',
    );
    await assert.rejects(peer.round(), /count/);
  });
});
