import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { CheckpointFile } from '../../../learner/checkpoints/checkpoint-file.js';
import { newTicketKey } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/log.js';
import { checkpoint } from '../../support/messages.js';

const ticketKey = newTicketKey();

describe("the checkpoint in the run's folder", () => {
  it('a stopped learner does not overwrite the newer checkpoint of its successor', async (t) => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-checkpoint-'));
    t.after(() => rm(folder, { recursive: true }));
    const [former, successor] = [
      new CheckpointFile(folder, 'run', silent),
      new CheckpointFile(folder, 'run', silent),
    ];
    assert.equal(await former.write(checkpoint({ serial: 1, ticketKey })), true);
    assert.equal(await successor.write(checkpoint({ serial: 3, ticketKey })), true);
    assert.equal(await former.write(checkpoint({ serial: 2, ticketKey })), false);
    assert.equal((await successor.read())?.serial, 3);
    // Another run of this name, of which there are fewer.
    assert.equal(await former.write(checkpoint({ serial: 1, ticketKey: newTicketKey() })), true);
  });
});
