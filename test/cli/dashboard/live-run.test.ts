import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { LiveRun } from '../../../cli/dashboard/run/live-run.js';
import { silentLogger } from '../../../cli/processes/file-logger.js';
import type { Broker } from '../../../shared/broker/broker.js';
import type { LeaderLease } from '../../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { runConfig } from '../../support/messages.js';
import { look } from '../../support/run-view.js';

const { backlog, manifest } = look(3);

/** The phase that the page shows of a run whose NATS answers with this. */
async function phaseWith(
  leader: LeaderLease | undefined,
  { published }: { published: PolicyManifest | undefined } = { published: manifest },
): Promise<string> {
  const answers = {
    run: 'r',
    isConnected: true,
    backlog: () => Promise.resolve(backlog),
    actors: { list: () => Promise.resolve([]) },
    policy: { current: () => Promise.resolve(published) },
    ledger: { leader: () => Promise.resolve(leader) },
    newestScored: () => Promise.resolve(undefined),
  };
  const run = new LiveRun({
    broker: answers as unknown as Broker,
    configs: { get: () => Promise.resolve(runConfig()) },
    findDecode: () => Promise.resolve(undefined),
    log: silentLogger(),
  });
  return (await run.now()).phase;
}

const renewed = (secondsAgo: number): LeaderLease => ({
  v: 1,
  holder: 'learner',
  renewedAt: Date.now() - 1_000 * secondsAgo,
});

describe('the page of a run whose NATS answers', () => {
  it('calls it live while its learner renews its lease', async () => {
    assert.equal(await phaseWith(renewed(5)), 'live');
  });

  it('says that it has no learner once that was killed, or has left without an end', async () => {
    assert.equal(await phaseWith(renewed(60)), 'stopped');
    assert.equal(await phaseWith(undefined), 'stopped');
  });

  it('waits for the learner of a run that is only beginning', async () => {
    assert.equal(await phaseWith(undefined, { published: undefined }), 'live');
  });
});
