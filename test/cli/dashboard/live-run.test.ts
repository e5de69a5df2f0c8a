import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { LiveRun } from '../../../cli/dashboard/run/live-run.js';
import { silentLogger } from '../../../cli/processes/file-logger.js';
import type { Broker } from '../../../shared/broker/broker.js';
import type { ActorLease } from '../../../shared/wire/actor-lease.js';
import type { LeaderLease } from '../../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { runConfig } from '../../support/messages.js';
import { leaseAfter, snapshot } from '../../support/run-view.js';

const { backlog, manifest } = snapshot(3);

/** The phase that the page shows of a run whose NATS answers with this. */
async function phaseWith(
  leader: LeaderLease | undefined,
  {
    published,
    past = [],
  }: { published: PolicyManifest | undefined; past?: readonly RunEvent[] } = {
    published: manifest,
  },
): Promise<string> {
  const answers = {
    run: 'r',
    isConnected: true,
    events: { past: () => Readable.from(past) },
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
  await run.catchUp(new AbortController().signal);
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

  it('the page calls a resumed run live before its first new step', async () => {
    const end: RunEvent = { v: 1, at: 0, kind: 'end', summary: { reason: 'stopped' } };
    const leader: RunEvent = { v: 1, at: 1, kind: 'leader', holder: 'learner' };
    const ended = { published: manifest, past: [leader, end] };
    assert.equal(await phaseWith(undefined, ended), 'over');
    const resumed = { published: manifest, past: [leader, end, leader] };
    assert.equal(await phaseWith(renewed(5), resumed), 'live');
    assert.equal(await phaseWith(renewed(60), resumed), 'stopped'); // killed
  });

  it('the page calls a run over whose learner has refused to resume it', async () => {
    const end: RunEvent = { v: 1, at: 0, kind: 'end', summary: { reason: 'max_steps' } };
    const leader: RunEvent = { v: 1, at: 1, kind: 'leader', holder: 'learner' };
    const step: RunEvent = { v: 1, at: 2, kind: 'step', step: 1, version: 1, metrics: {} };
    const after = (...past: RunEvent[]) => phaseWith(undefined, { published: manifest, past });
    assert.equal(await after(end, leader, leader), 'over');
    assert.equal(await after(end, leader, step), 'stopped');
  });
});

describe('the page on a machine whose clock differs from those of the actors', () => {
  /** The actors and engines on the page after each of some looks, with what the server has at each. */
  async function looks(...answers: readonly (readonly ActorLease[])[]) {
    let leases: readonly ActorLease[] = [];
    const broker = {
      run: 'r',
      isConnected: true,
      backlog: () => Promise.resolve(backlog),
      actors: { list: () => Promise.resolve(leases) },
      policy: { current: () => Promise.resolve(manifest) },
      ledger: { leader: () => Promise.resolve(renewed(1)) },
      newestScored: () => Promise.resolve(undefined),
    };
    const run = new LiveRun({
      broker: broker as unknown as Broker,
      configs: { get: () => Promise.resolve(runConfig()) },
      findDecode: () => Promise.resolve(undefined),
      log: silentLogger(),
    });
    const seen = [];
    for (const answer of answers) {
      leases = answer;
      seen.push((await run.now()).flow!);
    }
    return seen;
  }
  const engines = [{ url: 'http://gpu-0:8000', adapters: 2, slots: 6 }];
  const hour = 3_600;

  for (const [where, by] of [
    ['ahead', -hour],
    ['behind', hour],
  ] as const) {
    it(`the page shows an actor that renews its lease as live if the clock of the page is an hour ${where}`, async () => {
      const now = Date.now() / 1_000 + by; // by the clock of the actor
      const at = (seconds: number) =>
        leaseAfter(40 + seconds, { engines, lastSeenAt: 1_000 * (now + seconds) });
      const [, flow] = await looks([at(0)], [at(2)]);
      const [actor] = flow!.actors;
      assert.deepEqual([actor?.isLive, actor?.groups, actor?.groupsPerSecond], [true, 84, 2]);
      assert(actor!.seenSecondsAgo < 10);
      assert.equal(flow!.engines.length, 1);
    });
  }
});
