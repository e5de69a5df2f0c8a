import assert from 'node:assert/strict';
import { EventEmitter, on } from 'node:events';
import { after, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { register } from 'prom-client';
import { TicketEnded } from '../../actor/early-cancel.js';
import type { CanaryCheck } from '../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../actor/sampler/refusal.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { PermanentError, UserError } from '../../shared/base/errors.js';
import { NotServed } from '../../shared/engine/adapter-server.js';
import { AdapterAwaited } from '../../shared/run/adapters/adapter-loader.js';
import { WeightsNotFinite } from '../../shared/model/lora.js';
import type { Canary } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { silent } from '../support/log.js';
import { gate, never, until } from '../support/waiting.js';
import { manifest } from './values.js';

/** A follower of versions that the test publishes, and what it asked the sampler to do. */
function followed(
  load: (manifest: PolicyManifest, signal: AbortSignal) => Promise<void> = () => Promise.resolve(),
  refusedDelayMs = 60_000, // longer than any test
  check: CanaryCheck['require'] = () => Promise.resolve(),
  {
    maxVersions,
    requireCanary,
    retryDelayMs = 1,
    ready = () => Promise.resolve(),
    trouble,
  }: {
    maxVersions?: number;
    requireCanary?: boolean;
    retryDelayMs?: number;
    ready?: () => Promise<void>;
    trouble?: string; // of a sampler that is out of use
  } = {},
) {
  const published = new Map<number, PolicyManifest>();
  const news = new EventEmitter();
  const calls: string[] = [];
  const admitted: number[] = [];
  const policies = new PolicyFollower({
    log: silent,
    retryDelayMs,
    refusedDelayMs,
    store: {
      at: (version) => Promise.resolve(published.get(version)),
      async *watch(signal) {
        for await (const [next] of on(news, 'manifest', { signal })) yield next as PolicyManifest;
      },
    },
    sampler: {
      load: async (next, prove, signal) => {
        calls.push(`load ${next.version}`);
        await load(next, signal);
        await prove(() => assert.fail('nothing is scored'), signal);
      },
      admit: (version) => admitted.push(version),
      drop: (version) => calls.push(`drop ${version}`),
      maxVersions,
      ready,
      trouble,
    },
    canaries: { require: check },
    ...(requireCanary === undefined ? {} : { requireCanary }),
  });
  const stop = new AbortController();
  const following = policies.follow(stop.signal);
  following.catch(() => undefined); // the test that expects an error awaits it itself
  after(() => {
    stop.abort();
  });
  const quietly = (next: PolicyManifest) => published.set(next.version, next);
  const republish = (next: PolicyManifest): void => {
    quietly(next);
    news.emit('manifest', next);
  };
  const publish = (...versions: number[]): void => {
    for (const version of versions) republish(manifest(version));
  };
  return { policies, publish, republish, quietly, calls, admitted, following };
}

describe('following the policy', () => {
  it('the follower waits until the newest version is new enough', async () => {
    const { policies, publish } = followed();
    assert.equal(policies.version, undefined);
    const waiting = policies.holdAtLeast(2, never);
    publish(0, 1);
    using early = await policies.holdAtLeast(1, never);
    assert.equal(early.manifest.version, 1);
    publish(3);
    using hold = await waiting;
    assert.equal(hold.manifest.version, 3);
    assert.equal(policies.version, 3);
  });

  it('the follower skips versions that were superseded while another was loaded', async () => {
    let finish = (): void => undefined;
    const slow = new Promise<void>((resolve) => (finish = resolve));
    const { policies, publish, calls } = followed(({ version }) =>
      version === 0 ? slow : Promise.resolve(),
    );
    publish(0, 1, 2, 3);
    await new Promise(setImmediate); // all four have been heard of
    finish();
    using _hold = await policies.holdAtLeast(3, never);
    assert.deepEqual(calls, ['load 0', 'load 3']);
  });

  it('the follower retries a version that could not be loaded, and counts each failure', async () => {
    const refused = register.getSingleMetric('rl_actor_policies_refused_total')!;
    const count = async () =>
      (await refused.get()).values.find(({ labels }) => labels['reason'] === 'not_loaded')?.value ??
      0;
    const before = await count();
    let attempts = 0;
    const { policies, publish } = followed(() =>
      ++attempts < 3 ? Promise.reject(new Error('lost on the way')) : Promise.resolve(),
    );
    publish(0);
    using _hold = await policies.holdAtLeast(0, never);
    assert.equal(attempts, 3);
    assert.equal(await count(), before + 2);
  });

  it('tickets wait for the first version, and while newer ones cannot be loaded five times in a row; those that were leased for one go back', async () => {
    let isFull = false;
    const { policies, publish } = followed(() =>
      isFull ? Promise.reject(new Error('no space left')) : Promise.resolve(),
    );
    const first = policies.loadable(never);
    assert.equal(policies.trouble, 'waiting for the first policy version');
    publish(0);
    await first;
    assert.equal(policies.trouble, undefined);
    isFull = true;
    const leased = policies.readyFrom(1, never);
    publish(1);
    await assert.rejects(leased, { message: 'policy version 1 is not loaded: no space left' });
    assert(policies.isStuck);
    assert.equal((await policies.readyFrom(0, never)).version, 0);
    assert.equal(policies.trouble, 'policy version 1 is not loaded: no space left');
    let isOpen = false;
    const waiting = policies.loadable(never).then(() => (isOpen = true));
    await new Promise(setImmediate);
    assert(!isOpen);
    isFull = false;
    await waiting;
    assert.deepEqual([policies.version, policies.isStuck, policies.trouble], [1, false, undefined]);
  });

  it('a newer version that is refused for good ends a row of failures, so that tickets of older ones go on', async () => {
    const { policies, publish } = followed(({ version }) => {
      if (version === 1) return Promise.reject(new Error('no space left'));
      if (version === 2) return Promise.reject(new PermanentError('its digest is another'));
      return Promise.resolve();
    });
    publish(0);
    using _oldest = await policies.holdAtLeast(0, never);
    publish(1);
    while (!policies.isStuck) await new Promise(setImmediate);
    const waiting = policies.loadable(never);
    publish(2);
    await waiting;
    assert.deepEqual([policies.version, policies.isStuck], [0, false]);
  });

  it('a newer version is loaded at once, however long the wait for the next attempt at the last one is', async () => {
    const load = ({ version }: PolicyManifest) =>
      version === 1 ? Promise.reject(new Error('lost on the way')) : Promise.resolve();
    const { policies, publish } = followed(load, undefined, undefined, { retryDelayMs: 60_000 });
    publish(0);
    await policies.loadable(never);
    publish(1);
    await until(() => policies.whyNotLoaded !== undefined);
    publish(2);
    const [first] = await Promise.race([
      policies.holdAtLeast(2, never).then(({ manifest }) => [manifest.version]),
      sleep(5_000, ['none in five seconds'], { ref: false }),
    ]);
    assert.equal(first, 2);
  });

  for (const failure of [new Error('no engine answers'), new PermanentError('it is damaged')]) {
    it(`a version is loaded again as soon as a sampler that was out of use is back, also if ${failure.message}`, async () => {
      const back = gate();
      let isBack = false;
      const load = ({ version }: PolicyManifest) =>
        version === 1 && !isBack ? Promise.reject(failure) : Promise.resolve();
      const { policies, publish } = followed(load, undefined, undefined, {
        ...{ retryDelayMs: 60_000, trouble: 'no engine answers', ready: () => back.opened },
      });
      publish(0);
      await policies.loadable(never);
      publish(1);
      await until(() => policies.whyNotLoaded !== undefined);
      isBack = true;
      back.open();
      const loaded = until(() => policies.version === 1).then(() => 'in time');
      const late = sleep(5_000, 'not in five seconds', { ref: false });
      assert.equal(await Promise.race([loaded, late]), 'in time');
    });
  }

  it('a loaded version that is published with other weights replaces itself where the sampler has no room for both', async () => {
    const { policies, publish, republish, calls } = followed(undefined, undefined, undefined, {
      maxVersions: 3,
    });
    for (const version of [8, 9, 10]) {
      publish(version);
      (await policies.holdAtLeast(version, never))[Symbol.dispose]();
    }
    republish(manifest(10, { samplerPath: 'tinker://other/sampler_weights/v10', publishedAt: 1 }));
    await until(() => calls.length === 5);
    assert.deepEqual(calls.slice(3), ['drop 8', 'load 10']);
  });

  it('the follower loads a version again when it is published with a new session', async () => {
    const { policies, publish, republish, calls } = followed();
    publish(0);
    (await policies.holdAtLeast(0, never))[Symbol.dispose]();
    republish(manifest(0, { samplingSessionId: 'another', publishedAt: 1 }));
    await new Promise(setImmediate); // it has been heard of
    publish(1);
    (await policies.holdAtLeast(1, never))[Symbol.dispose]();
    using hold = await policies.holdExactly(0, never);
    assert.deepEqual(calls, ['load 0', 'load 0', 'load 1']);
    assert.equal(hold.manifest.samplingSessionId, 'another');
  });

  it('the follower loads nothing again when only the place of a loaded adapter changes', async () => {
    const { policies, publish, republish, calls } = followed();
    const contents = { sha256: 'a'.repeat(64), bytes: 1, rank: 2, alpha: 4 };
    const at = (uri: string, publishedAt: number) =>
      manifest(0, { adapter: { uri, ...contents }, publishedAt });
    republish(at('https://store.example/1', 0));
    (await policies.holdAtLeast(0, never))[Symbol.dispose]();
    republish(at('https://store.example/2', 1));
    await new Promise(setImmediate);
    using hold = await policies.holdExactly(0, never);
    assert.equal(hold.manifest.adapter?.uri, 'https://store.example/2');
    assert.deepEqual(calls, ['load 0']);
    const other = { ...contents, sha256: 'b'.repeat(64) };
    republish(manifest(0, { adapter: { uri: 'nats:x', ...other }, publishedAt: 2 }));
    await new Promise(setImmediate);
    publish(1);
    (await policies.holdAtLeast(1, never))[Symbol.dispose]();
    assert.deepEqual(calls, ['load 0', 'load 0', 'load 1']);
  });

  it('the follower waits for an adapter that is published on request, shows it, and loads it once it is there', async () => {
    const contents = { uri: 'nats:x', sha256: 'a'.repeat(64), bytes: 1, rank: 2, alpha: 4 };
    let asked = 0;
    const { policies, republish, following } = followed(({ adapter }) => {
      asked++;
      if (adapter !== undefined) return Promise.resolve();
      return Promise.reject(new AdapterAwaited('version 0 comes without its adapter'));
    });
    republish(manifest(0, { adapterOnRequest: true }));
    while (!policies.awaitsAdapter) await new Promise(setImmediate);
    assert.equal(policies.whyNotLoaded, 'version 0 comes without its adapter');
    assert.equal(policies.version, undefined);
    for (let i = 0; i < 10; i++) await new Promise(setImmediate);
    assert.equal(asked, 1); // it waits for news instead of asking again
    republish(manifest(0, { adapter: contents, publishedAt: 1 }));
    using hold = await policies.holdAtLeast(0, never);
    assert.deepEqual(hold.manifest.adapter, contents);
    assert.deepEqual([policies.awaitsAdapter, policies.whyNotLoaded], [false, undefined]);
    assert.equal(
      await Promise.race([following, Promise.resolve('still following')]),
      'still following',
    );
  });

  it('the follower keeps the last good version while the newest is damaged or not finite', async () => {
    const refused = async (reason: string) =>
      (await register.getSingleMetric('rl_actor_policies_refused_total')!.get()).values.find(
        ({ labels }) => labels['reason'] === reason,
      )?.value ?? 0;
    const before = [await refused('not_finite'), await refused('damaged')];
    const { policies, publish, calls } = followed(({ version }) => {
      if (version === 1) return Promise.reject(new WeightsNotFinite('element 0 is NaN'));
      if (version === 2) return Promise.reject(new PermanentError('its digest is another'));
      return Promise.resolve();
    });
    publish(0);
    (await policies.holdAtLeast(0, never))[Symbol.dispose]();
    publish(1);
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    assert.equal(policies.version, 0);
    assert.match(policies.whyNotLoaded!, /^policy version 1 is refused: element 0 is NaN$/);
    using _stillUsed = await policies.holdAtLeast(0, never);
    await assert.rejects(policies.holdExactly(1, never), /element 0 is NaN/);
    publish(2);
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    publish(3);
    using hold = await policies.holdAtLeast(3, never);
    assert.equal(hold.manifest.version, 3);
    assert.equal(policies.whyNotLoaded, undefined);
    assert.deepEqual(calls, ['load 0', 'load 1', 'load 1', 'load 2', 'load 3']);
    assert.deepEqual(
      [await refused('not_finite'), await refused('damaged')],
      [before[0]! + 2, before[1]! + 1],
    );
  });

  it('the follower retries after a delay a version that was damaged in transit', async () => {
    let attempts = 0;
    const { policies, publish } = followed(
      () =>
        ++attempts === 1
          ? Promise.reject(new PermanentError('its digest is another'))
          : Promise.resolve(),
      1,
    );
    publish(0);
    using _hold = await policies.holdAtLeast(0, never);
    assert.equal(attempts, 2);
  });

  it('the follower fails when the sampler can never use what is published', async () => {
    const { publish, following } = followed(() => Promise.reject(new UserError('no adapter')));
    publish(0);
    await assert.rejects(following, /no adapter/);
  });

  it('the follower stops waiting when the signal aborts, with its reason', async () => {
    const { policies } = followed();
    const stop = new AbortController();
    const waiting = policies.holdAtLeast(0, stop.signal);
    stop.abort(new TicketEnded('another actor has sampled it'));
    await assert.rejects(waiting, TicketEnded);
  });
});

describe('a version without a canary, for an actor that requires one', { timeout: 30_000 }, () => {
  const canary: Canary = {
    ...{ temperature: 1, arithmetic: 'fp32', texts: [Int32Array.of(3, 4)], places: [[0, 1]] },
    logprobs: Float32Array.of(-0.5),
  };
  const count = async () =>
    (await register.getSingleMetric('rl_actor_policies_refused_total')!.get()).values.find(
      ({ labels }) => labels['reason'] === 'no_canary',
    )?.value ?? 0;
  const requiring = () => followed(undefined, 1, undefined, { requireCanary: true });

  it('the follower refuses it without loading it, keeps the last version, and goes on with one that has a canary', async () => {
    const before = await count();
    const { policies, publish, republish, calls } = requiring();
    republish({ ...manifest(0), canary });
    (await policies.holdAtLeast(0, never))[Symbol.dispose]();
    publish(1);
    await until(async () => policies.version !== 0 || (await count()) >= before + 2);
    assert.match(
      policies.whyNotLoaded!,
      /^policy version 1 is refused: it was published without a canary/,
    );
    assert.deepEqual([policies.version, policies.refused], [0, undefined]);
    assert.equal((await policies.trusted(never)).aborted, false);
    using last = await policies.holdAtLeast(0, never);
    assert.equal(last.manifest.version, 0);
    republish({ ...manifest(2), canary });
    using next = await policies.holdAtLeast(2, never);
    assert.equal(next.manifest.version, 2);
    assert.deepEqual(
      calls.filter((call) => call.startsWith('load')),
      ['load 0', 'load 2'],
    );
  });

  it('a ticket that is pinned to it goes back to be sampled by another actor', async () => {
    const { policies, quietly, republish } = requiring();
    quietly(manifest(1));
    republish({ ...manifest(2), canary });
    using _newest = await policies.holdAtLeast(2, never);
    await assert.rejects(
      policies.holdExactly(1, never),
      (error) => error instanceof Error && !(error instanceof PermanentError),
    );
  });

  it('an actor that does not require it samples with it', async () => {
    const { policies, publish } = followed();
    publish(0);
    using hold = await policies.holdAtLeast(0, never);
    assert.equal(hold.manifest.version, 0);
  });
});

describe('a version whose canary the sampler does not reproduce', () => {
  /** Refuses a version until it is allowed. */
  const refusing = (refused: number) => {
    let isRefused = true;
    const check: CanaryCheck['require'] = ({ version }) => {
      if (!isRefused || version !== refused) return Promise.resolve();
      const finding = { version, difference: 0.5, band: 1e-3, mean: 0.2, meanBand: 2e-4, place: 7 };
      return Promise.reject(new CanaryNotReproduced('token 3 is off by 0.5', finding));
    };
    return { check, allow: () => (isRefused = false) };
  };
  const count = async () =>
    (await register.getSingleMetric('rl_actor_policies_refused_total')!.get()).values.find(
      ({ labels }) => labels['reason'] === 'canary',
    )?.value ?? 0;

  it('the follower stops sampling, counts each attempt, and goes on with a version that passes', async () => {
    const before = await count();
    const { policies, publish, admitted } = followed(undefined, 1, refusing(1).check);
    publish(0);
    (await policies.holdAtLeast(0, never))[Symbol.dispose]();
    const trust = await policies.trusted(never);
    assert.equal(trust.aborted, false);
    publish(1);
    while ((policies.refused?.attempts ?? 0) < 3) await new Promise(setImmediate);
    assert.equal(trust.aborted, true);
    assert.equal(policies.version, 0);
    const { attempts, ...finding } = policies.refused!;
    assert.deepEqual(finding, {
      version: 1,
      difference: 0.5,
      band: 1e-3,
      mean: 0.2,
      meanBand: 2e-4,
      place: 7,
    });
    assert.equal(await count(), before + attempts);
    assert.match(policies.whyNotLoaded!, /^policy version 1 is refused: token 3 is off by 0.5$/);
    const again = policies.trusted(never);
    publish(2);
    assert.equal((await again).aborted, false);
    assert.equal(policies.refused, undefined);
    assert.deepEqual(admitted, [0, 2]);
  });

  it('the follower goes on with the same version once the sampler reproduces it', async () => {
    const { check, allow } = refusing(0);
    const { policies, publish } = followed(undefined, 1, check);
    publish(0);
    while (policies.refused === undefined) await new Promise(setImmediate);
    allow();
    using hold = await policies.holdAtLeast(0, never);
    assert.deepEqual([hold.manifest.version, policies.refused], [0, undefined]);
  });

  it('a ticket that is pinned to it goes back to be sampled by another actor', async () => {
    const { policies, publish } = followed(undefined, 60_000, refusing(1).check);
    publish(0);
    using _newest = await policies.holdAtLeast(0, never);
    publish(1, 2);
    using _newer = await policies.holdAtLeast(2, never);
    await assert.rejects(policies.holdExactly(1, never), (error) => {
      assert(error instanceof Error && !(error instanceof PermanentError));
      return true;
    });
  });

  it('waiting for trust ends when the actor ends', async () => {
    const { policies, publish } = followed(undefined, 60_000, refusing(0).check);
    publish(0);
    while (policies.refused === undefined) await new Promise(setImmediate);
    const stop = new AbortController();
    const waiting = policies.trusted(stop.signal);
    stop.abort();
    await waiting;
  });
});

describe('a pinned version', () => {
  it('a pinned version is loaded from its own manifest, whatever the newest is', async () => {
    const { policies, publish, calls } = followed();
    publish(0);
    using _newest = await policies.holdAtLeast(0, never);
    publish(1, 2);
    using _newer = await policies.holdAtLeast(2, never);
    using pinned = await policies.holdExactly(1, never);
    assert.equal(pinned.manifest.version, 1);
    assert(calls.includes('load 1'));
    assert.equal(policies.version, 2);
  });

  it('a pinned version is waited for until it is published', async () => {
    const { policies, publish } = followed();
    const waiting = policies.holdExactly(1, never);
    publish(0);
    using _newest = await policies.holdAtLeast(0, never);
    publish(1);
    using pinned = await waiting;
    assert.equal(pinned.manifest.version, 1);
  });

  it('a pinned version is loaded again as long as the sampler may serve it later', async () => {
    let [attempts, failures] = [0, 20];
    const refusal = new Error('out of memory');
    const { policies, publish } = followed(({ version }) => {
      if (version === 1 && ++attempts <= failures) return Promise.reject(new NotServed(refusal));
      return Promise.resolve();
    });
    publish(0);
    using _oldest = await policies.holdAtLeast(0, never);
    publish(1, 2);
    using _newest = await policies.holdAtLeast(2, never);
    [attempts, failures] = [0, 20];
    using pinned = await policies.holdExactly(1, never);
    assert.deepEqual([pinned.manifest.version, attempts], [1, 21]);
  });

  it('a pinned version is given up once a newer one was loaded since its first failure, unless the sampler is only busy', async () => {
    for (const isBusy of [false, true]) {
      let attempts = 0;
      const { policies, publish } = followed(({ version }) => {
        if (version !== 1) return Promise.resolve();
        attempts += 1;
        if (attempts === 5) publish(3);
        if (attempts > 50) return Promise.resolve();
        return Promise.reject(new NotServed(new Error('out of memory'), { isBusy }));
      });
      publish(0);
      using _oldest = await policies.holdAtLeast(0, never);
      publish(1, 2);
      using _newest = await policies.holdAtLeast(2, never);
      attempts = 0;
      const pinned = policies.holdExactly(1, never);
      if (isBusy) (await pinned)[Symbol.dispose]();
      else await assert.rejects(pinned, { message: 'out of memory' });
    }
  });

  it('a pinned version whose sampling session is lost is given up after as many attempts as that allows', async () => {
    let attempts = 0;
    const lost = new NotServed(new Error('no such session'), { maxAttempts: 4 });
    const { policies, publish } = followed(({ version }) => {
      if (version !== 1) return Promise.resolve();
      attempts += 1;
      return Promise.reject(lost);
    });
    publish(0);
    using _oldest = await policies.holdAtLeast(0, never);
    publish(1, 2);
    using _newest = await policies.holdAtLeast(2, never);
    attempts = 0;
    await assert.rejects(policies.holdExactly(1, never), { message: 'no such session' });
    assert.equal(attempts, 4);
  });

  it('a pinned version is refused when it was retired', async () => {
    const { policies, publish } = followed();
    publish(3);
    using _newest = await policies.holdAtLeast(3, never);
    await assert.rejects(policies.holdExactly(1, never), PermanentError);
  });

  it('a pinned version is still loaded for the other tickets when the first one no longer needs it', async () => {
    const { policies, publish, calls } = followed((_, signal) =>
      calls.length === 2
        ? new Promise((_, reject) => {
            signal.addEventListener('abort', () => {
              reject(signal.reason as Error);
            });
          })
        : Promise.resolve(),
    );
    publish(2);
    using _newest = await policies.holdAtLeast(2, never);
    publish(1);
    const first = new AbortController();
    const given = policies.holdExactly(1, first.signal);
    const other = policies.holdExactly(1, never);
    await new Promise(setImmediate); // both wait for it
    first.abort(new TicketEnded('the first has come to its end'));
    await assert.rejects(given, TicketEnded);
    using pinned = await other;
    assert.equal(pinned.manifest.version, 1);
    assert.deepEqual(calls, ['load 2', 'load 1', 'load 1']);
  });

  it('a pinned version whose adapter is published on request is waited for', async () => {
    const contents = { uri: 'nats:x', sha256: 'a'.repeat(64), bytes: 1, rank: 2, alpha: 4 };
    const { policies, publish, quietly } = followed(({ version, adapter }) => {
      if (version !== 1 || adapter !== undefined) return Promise.resolve();
      return Promise.reject(new AdapterAwaited('version 1 comes without its adapter'));
    });
    quietly(manifest(1, { adapterOnRequest: true }));
    publish(2);
    using _newest = await policies.holdAtLeast(2, never);
    const pinned = policies.holdExactly(1, never);
    while (!policies.awaitsAdapter) await new Promise(setImmediate);
    quietly(manifest(1, { adapter: contents, publishedAt: 1 })); // only the newest is announced
    using hold = await pinned;
    assert.deepEqual(hold.manifest.adapter, contents);
  });

  it('a pinned version counts as the oldest version in use as long as it is held', async () => {
    const { policies, publish } = followed();
    publish(0);
    const pinned = await policies.holdExactly(0, never);
    publish(4);
    using _newest = await policies.holdAtLeast(4, never);
    assert.equal(policies.oldestInUse, 0);
    pinned[Symbol.dispose]();
    assert.equal(policies.oldestInUse, 4);
  });
});

describe('unused versions', () => {
  it('unused versions are dropped, except the newest and the two before it', async () => {
    const { policies, publish, calls } = followed();
    for (const version of [0, 1, 2, 3, 4]) {
      publish(version);
      const hold = await policies.holdAtLeast(version, never);
      hold[Symbol.dispose]();
    }
    assert.deepEqual(
      calls.filter((call) => call.startsWith('drop')),
      ['drop 0', 'drop 1'],
    );
  });

  it('unused versions are dropped before another is loaded where the sampler has no room for it', async () => {
    const { policies, publish, calls } = followed(undefined, undefined, undefined, {
      maxVersions: 2,
    });
    publish(0);
    using pinned = await policies.holdAtLeast(0, never);
    for (const version of [1, 2]) {
      publish(version);
      (await policies.holdAtLeast(version, never))[Symbol.dispose]();
    }
    assert.deepEqual(calls, ['load 0', 'load 1', 'load 2', 'drop 1']); // 0 is in use
    pinned[Symbol.dispose]();
    publish(3);
    (await policies.holdAtLeast(3, never))[Symbol.dispose]();
    assert.deepEqual(calls.slice(4), ['load 3', 'drop 0']);
  });

  it('unused versions are not loaded again when a ticket is pinned to one of the last', async () => {
    const { policies, publish, calls } = followed();
    publish(0);
    (await policies.holdAtLeast(0, never))[Symbol.dispose]();
    publish(1);
    using _newest = await policies.holdAtLeast(1, never);
    using _pinned = await policies.holdExactly(0, never);
    assert.deepEqual(calls, ['load 0', 'load 1']);
  });
});
