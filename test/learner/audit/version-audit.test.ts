import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VersionAudit } from '../../../learner/audit/version-audit.js';
import type { Canary } from '../../../shared/wire/canary.js';
import type { Rollout } from '../../../shared/wire/rollout-group.js';
import { silent } from '../../support/log.js';
import { rolloutGroup, ticket } from '../../support/messages.js';

const canary: Canary = {
  ...{ temperature: 0.8, arithmetic: 'fp32', texts: [Int32Array.of(3, 4, 5)], places: [[0, 2]] },
  logprobs: Float32Array.of(-2),
};

/** What a session gives to the token at each index of any text. */
type Session = (index: number) => number;
const honest: Session = (index) => -index;

/** An audit of everything, of versions 0 to 9, whose sessions are as given. */
function auditing(
  session: (version: number) => Session | Promise<never> = () => honest,
  {
    share = 1,
    without = [] as readonly number[],
    isAdapterRounded = false,
    published = canary,
    retains = undefined as number | undefined, // of a backend that does not sample
  } = {},
) {
  const asked: { version: number; tokens: number[]; temperature: number | undefined }[] = [];
  const deceits: unknown[][] = [];
  const score = async (version: number, tokens: Int32Array, temperature?: number) => {
    asked.push({ version, tokens: [...tokens], temperature });
    const gives = await session(version);
    return Float32Array.from(tokens, (_, index) => (index === 0 ? NaN : gives(index)));
  };
  const audit = new VersionAudit({
    client: {
      sampler: (id: string) => ({
        logprobs: (tokens: Int32Array, options: { temperature?: number } = {}) =>
          score(Number(id), tokens, options.temperature),
      }),
    } as never,
    retained: retains === undefined ? undefined : { version: retains, logprobs: score },
    ...{ share, seed: 0, temperature: 0.8, trainer: 'fp32', isAdapterRounded },
    onDeceit: (...finding) => {
      deceits.push(finding);
      return Promise.resolve();
    },
    selection: {
      ...{ mostProbable: 8, isChosen: () => false },
      examine: () => Promise.resolve(),
    },
    log: silent,
  });
  for (let version = 0; version < 10; version++) {
    const samplingSessionId = without.includes(version) ? {} : { samplingSessionId: `${version}` };
    audit.add({ version, canary: published, ...samplingSessionId });
  }
  return { audit, asked, deceits };
}

/** A group with prompt tokens 5, 6, 7, whose rollouts have the honest logprobs plus an error. */
function group(error: number, versions: Rollout['versions'] = [[4, 3]], name = 'a') {
  const rollouts = [0, 1].map((): Rollout => ({
    tokens: Int32Array.of(1, 2, 3),
    behaviorLogprobs: Float32Array.of(-3 - error, -4 - error, -5 - error),
    versions,
    stopReason: 'length',
  }));
  const certificate = { canaries: [], engine: 'x', arithmetic: 'fp32' as const };
  return rolloutGroup({ actor: name, ticket: ticket({ groupSize: 2 }), rollouts, certificate });
}

describe('the audit of the version that a group names', () => {
  it('the audit asks the session of the version, whatever is newer, at the temperature of sampling', async () => {
    const { audit, asked, deceits } = auditing();
    await audit.consider(group(0));
    await audit.consider(group(1e-4));
    assert.deepEqual(asked[0], { version: 4, tokens: [3, 4, 5], temperature: 0.8 });
    assert.deepEqual(asked[1], { version: 4, tokens: [5, 6, 7, 1, 2, 3], temperature: 0.8 });
    assert.equal(asked.length, 5); // the canary once, two rollouts of two groups
    assert.deepEqual(deceits, []);
  });

  it('an actor is convicted by two groups that its version would not give, not by one', async () => {
    const { audit, deceits } = auditing();
    await audit.consider(group(0.01));
    await audit.consider(group(0.01, [[4, 3]], 'b'));
    assert.equal(deceits.length, 0);
    await audit.consider(group(0.01, [[5, 3]]));
    const [[actor, gap, bound, version]] = deceits as [[string, number, number, number]];
    assert.deepEqual([actor, bound, version, deceits.length], ['a', 2e-4, 5, 1]);
    assert(Math.abs(gap - 0.01) < 1e-6);
  });

  it('an honest group that was sampled with a rounded adapter does not convict its actor', async () => {
    const { audit, deceits } = auditing(undefined, { isAdapterRounded: true });
    for (let i = 0; i < 3; i++) await audit.consider(group(2e-3));
    assert.deepEqual(deceits, []);
    for (let i = 0; i < 2; i++) await audit.consider(group(0.05));
    assert.equal(deceits.length, 1);
  });

  it('a logprob of the version that is not finite is the fault of the backend, and convicts no actor', async () => {
    const { audit, deceits } = auditing(() => (index) => (index === 4 ? NaN : -index));
    for (let i = 0; i < 2; i++) await audit.consider(group(1));
    assert.deepEqual(deceits, []);
  });

  it('a version whose session does not reproduce its canary is not used, nor one without a session', async () => {
    const { audit, asked, deceits } = auditing(
      (version) => (version === 4 ? (index) => -index / 2 : honest),
      { without: [5] },
    );
    for (const version of [4, 4, 5, 12]) await audit.consider(group(1, [[version, 3]]));
    assert.deepEqual(
      asked.map(({ version }) => version),
      [4],
    );
    assert.deepEqual(deceits, []);
  });

  it('a version whose session is within the band but closer to an earlier version is not used', async () => {
    const earlier = [{ version: 3, logprobs: Float32Array.of(-2.00015) }];
    const { audit, asked } = auditing(() => (index) => (index === 2 ? -2.00015 : -index), {
      published: { ...canary, earlier },
    });
    await audit.consider(group(0));
    assert.equal(asked.length, 1); // the canary only
  });

  it('a backend that does not sample compares the groups of the version that it retains', async () => {
    const all = Array.from({ length: 10 }, (_, version) => version);
    const { audit, asked, deceits } = auditing(undefined, { without: all, retains: 6 });
    for (const version of [5, 6, 7]) await audit.consider(group(0.01, [[version, 3]]));
    assert.deepEqual(
      asked.map(({ version, tokens, temperature }) => [version, tokens.length, temperature]),
      [
        [6, 3, 0.8], // its canary
        [6, 6, 0.8],
        [6, 6, 0.8],
      ],
    );
    assert.equal(deceits.length, 0);
    await audit.consider(group(0.01, [[6, 3]]));
    assert.deepEqual(
      deceits.map(([actor, , , version]) => [actor, version]),
      [['a', 6]],
    );
  });

  it('of a group that several versions sampled, the rollouts of the retained one are compared', async () => {
    const all = Array.from({ length: 10 }, (_, version) => version);
    const { audit, asked, deceits } = auditing(undefined, { without: all, retains: 6 });
    const [one] = group(0.01, [[6, 3]]).rollouts;
    const other = { ...one!, versions: [[5, 3]] as Rollout['versions'] };
    for (let i = 0; i < 2; i++) await audit.consider({ ...group(0), rollouts: [one!, other] });
    assert.deepEqual(
      asked.map(({ version }) => version),
      [6, 6, 6], // its canary, and a rollout of each group
    );
    assert.equal(deceits.length, 1);
  });

  it('more groups of a retained version are compared, so that the share of all groups is the same', async () => {
    const all = Array.from({ length: 10 }, (_, version) => version);
    const { audit, asked } = auditing(undefined, { share: 0.01, without: all, retains: 4 });
    for (let order = 0; order < 400; order++) {
      const one = group(0);
      await audit.consider({ ...one, ticket: { ...one.ticket, ticketId: `t-${order}` } });
    }
    const compared = (asked.length - 1) / 2;
    assert(compared > 70 && compared < 130, `${compared} of 400`);
  });

  it('a rollout that several versions sampled is left out', async () => {
    const { audit, asked } = auditing();
    await audit.consider(
      group(1, [
        [4, 1],
        [5, 2],
      ]),
    );
    assert.deepEqual(asked, []);
  });

  it('a failure of the backend ends the comparison of this group only', async () => {
    let isAway = true;
    const { audit, deceits } = auditing(() =>
      isAway ? Promise.reject(new Error('away')) : honest,
    );
    await audit.consider(group(1));
    isAway = false;
    for (let i = 0; i < 2; i++) await audit.consider(group(1));
    assert.equal(deceits.length, 1);
  });

  it('the share of the groups that are compared is that of the setting, the same in every session', async () => {
    const chosen = async () => {
      const { audit, asked } = auditing(undefined, { share: 0.25 });
      for (let order = 0; order < 400; order++) {
        const one = group(0);
        await audit.consider({ ...one, ticket: { ...one.ticket, ticketId: `t-${order}` } });
      }
      return (asked.length - 1) / 2;
    };
    const count = await chosen();
    assert(count > 70 && count < 130, `${count} of 400`);
    assert.equal(await chosen(), count);
  });

  it('at most four groups wait, so that a slow backend slows nothing', async () => {
    let release = (): void => undefined;
    const slow = new Promise<void>((resolve) => (release = resolve));
    const { audit, asked } = auditing(() => slow.then(() => honest) as never);
    const considered = Array.from({ length: 10 }, () => audit.consider(group(0)));
    await Promise.all(considered.slice(4));
    release();
    await Promise.all(considered);
    assert.equal(asked.length, 1 + 4 * 2);
  });
});
