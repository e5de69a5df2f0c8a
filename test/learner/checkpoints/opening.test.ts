import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { openRun } from '../../../learner/checkpoints/opening.js';
import type { Checkpoint } from '../../../shared/wire/ledger.js';
import { silent } from '../../support/broker.js';
import { checkpoint, runConfig } from '../../support/messages.js';

/** Opens a run whose ledger and manifest are as given; tells what it wrote into the ledger, too. */
async function open(saved: Checkpoint | undefined, newestVersion: number | undefined) {
  const written: Checkpoint[] = [];
  const manifest = newestVersion === undefined ? undefined : { version: newestVersion };
  const broker = {
    ledger: {
      read: () => Promise.resolve(saved),
      write: (entry: Checkpoint) => Promise.resolve(void written.push(entry)),
    },
    policy: { current: () => Promise.resolve(manifest) },
  };
  const run = () => Promise.resolve('the run');
  const client = { createLoraModel: run, restoreLoraModel: run };
  const opened = await openRun(broker as never, client as never, runConfig(), silent);
  return { opened, written };
}

describe('a run that is opened', () => {
  it('begins with version 0, and has never been restored', async () => {
    const { opened, written } = await open(undefined, undefined);
    assert.deepEqual([opened.version, opened.rewinds], [0, []]);
    assert.deepEqual(written, []);
  });

  it('gives restored weights a number above all that were published, and the ledger knows it', async () => {
    const before = [{ from: 5, to: 3 }];
    const saved = checkpoint({ step: 4, version: 6, rewinds: before });
    const { opened, written } = await open(saved, 8);
    const rewinds = [...before, { from: 9, to: 6 }];
    assert.deepEqual([opened.version, opened.rewinds], [9, rewinds]);
    assert.deepEqual(written, [{ ...saved, rewinds }]);
  });

  it('reads a ledger from before rewinds were kept', async () => {
    const saved = checkpoint({ version: 6 });
    delete saved.rewinds;
    const { opened } = await open(saved, 6);
    assert.deepEqual(opened.rewinds, [{ from: 7, to: 6 }]);
  });

  it('gives the number again that a crash kept from being published', async () => {
    const rewinds = [{ from: 9, to: 6 }];
    const { opened, written } = await open(checkpoint({ version: 6, rewinds }), 8);
    assert.deepEqual([opened.version, opened.rewinds], [9, rewinds]);
    assert.deepEqual(written.at(-1)?.rewinds, rewinds);
  });

  it('keeps the number of weights that were saved and not published yet', async () => {
    const { opened, written } = await open(checkpoint({ version: 6 }), 4);
    assert.deepEqual([opened.version, opened.rewinds], [6, []]);
    assert.deepEqual(written, []);
  });
});
