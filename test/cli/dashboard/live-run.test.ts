import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { LiveRun } from '../../../cli/dashboard/run/live-run.js';
import { silentLogger } from '../../../cli/processes/file-logger.js';
import type { Broker } from '../../../shared/broker/broker.js';
import type { LeaderLease } from '../../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { runConfig } from '../../support/messages.js';
import { snapshot } from '../../support/run-view.js';

const { backlog, manifest } = snapshot(3);

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
  it('the page calls a run live while its learner renews its lease', async () => {
    assert.equal(await phaseWith(renewed(5)), 'live');
  });

  it('the page reports a missing learner once the learner was killed or left without ending the run', async () => {
    assert.equal(await phaseWith(renewed(60)), 'stopped');
    assert.equal(await phaseWith(undefined), 'stopped');
  });

  it('the page waits for the learner of a run that has just begun', async () => {
    assert.equal(await phaseWith(undefined, { published: undefined }), 'live');
  });
});
