import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { auditLimits } from '../../../learner/settings/run-control.js';
import { ActorAudit, type QuarantineEvent } from '../../../learner/audit/actor-audit.js';
import type { TrainedGroup } from '../../../learner/step/collected-step.js';
import { createRandom } from '../../../shared/base/random.js';
import { silent } from '../../support/log.js';
import { rollout, rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';

const groupSize = 4;
const length = 16;
const limits = auditLimits({
  trainerClass: 'fp32',
  auditShare: 1,
  ...{ auditVersionShare: 0, auditSelectionShare: 0 },
  ...{ auditRequireDraws: false, auditOnSelection: 'report' },
  auditNoise: 0.05,
});

/** A group's source: an actor, the logprobs that it claims, and those of the policy in training. */
interface Sample {
  readonly actor: string;
  readonly age: number; // of its tokens, in versions
  readonly substep?: number; // that trains on it; the first by default
  readonly claim: (true_: number) => number;
  readonly now: (true_: number) => number;
}

describe('ActorAudit', () => {
  let audit: ActorAudit;
  let events: QuarantineEvent[];
  let now: number;
  let version: number;
  let random: () => number;
  const names = () => events.map(({ actor, why }) => `${actor} ${why}`);

  const start = (share = 1) => {
    audit = new ActorAudit({
      ...{ share, seed: 1, limits, log: silent },
      now: () => now,
      emit: (event) => {
        events.push(event);
        return Promise.resolve();
      },
    });
  };
  beforeEach(() => {
    events = [];
    now = 0;
    version = 10;
    const source = createRandom('audit');
    random = () => source.next();
    start();
  });

  /** One step of these groups. Tokens have probabilities between e^-2 and 1. */
  const step = async (samples: readonly Sample[]) => {
    version += 1;
    const made = samples.map(({ actor, age, substep = 0, claim, now }, order) => {
      const truths = Array.from({ length: groupSize }, () =>
        Float32Array.from({ length }, () => -2 * random()),
      );
      const versions: [number, number][] = [[version - age, length]];
      const rollouts = truths.map((truth) =>
        rollout(length, { behaviorLogprobs: truth.map(claim), versions }),
      );
      const forTicket = ticket({ ticketId: `t-${version}-${order}`, groupSize });
      const scored = scoredGroup({ group: rolloutGroup({ ticket: forTicket, actor, rollouts }) });
      const group = { scored, seq: order, sampledBy: [version - age], arrivedAtVersion: version };
      const trained: TrainedGroup = { group, staleness: age, substep };
      const pairs = truths.map((truth, i) => ({
        behavior: rollouts[i]!.behaviorLogprobs,
        current: truth.map(now),
        versions,
      }));
      return { trained, pairs };
    });
    return audit.observe(
      { version, maxStepsOffPolicy: Infinity, rewinds: [] },
      made.map(({ trained }) => trained),
      made.map(({ pairs }) => ({ rollouts: pairs })),
    );
  };
  const same = (logprob: number) => logprob;
  /** The policy has moved: most tokens have become less probable, as tokens of an older policy do. */
  const moved = (by: number) => (logprob: number) => logprob - 2 * by * random();
  const honest = (actor: string, age = 0, by = 0): Sample => {
    return { actor, age, claim: same, now: moved(by) };
  };
  const times = (count: number, sample: Sample) => Array.from({ length: count }, () => sample);

  it('the audit believes honest actors at any age, even when the policy moves ever faster', async () => {
    for (const by of [0, 0.01, 0.1, 1, 3, 9]) {
      await step([
        ...times(4, honest('a')),
        ...times(4, honest('b', 1, by)),
        ...times(4, honest('c', 2, 2 * by)),
        ...times(2, honest('d', 2, 2 * by)),
        ...times(2, honest('a', 2, 2 * by)),
      ]);
    }
    assert.deepEqual(names(), []);
  });

  it('the audit quarantines an actor whose stale groups claim too little, without comparing it with others', async () => {
    const low: Sample = { actor: 'd', age: 1, claim: (logprob) => logprob - 1, now: moved(0.1) };
    await step([...times(8, honest('a')), low]);
    assert.deepEqual(names(), ['d likelihood']);
    assert(audit.isQuarantined('d'));
    assert(events[0]!.gap > events[0]!.bound && events[0]!.groups === 1);
  });

  it('the audit accumulates evidence over the groups of an actor whose claims are slightly off', async () => {
    const low: Sample = { actor: 'd', age: 1, claim: (logprob) => logprob - 0.2, now: same };
    await step([...times(8, honest('a')), low]);
    assert.deepEqual(names(), []);
    await step([...times(8, honest('a')), low]);
    assert.deepEqual(names(), ['d likelihood']);
    assert.equal(events[0]!.groups, 2);
  });

  it('past honesty does not offset the later false claims of an actor', async () => {
    for (let i = 0; i < 50; i += 1) await step([honest('d', 2, 3), ...times(3, honest('a'))]);
    const low: Sample = { actor: 'd', age: 1, claim: (logprob) => logprob - 1, now: same };
    await step([low, ...times(3, honest('a'))]);
    assert.deepEqual(names(), ['d likelihood']);
  });

  it('the audit quarantines an actor that claims too much, compared with actors whose tokens have the same age', async () => {
    const high: Sample = { actor: 'd', age: 1, claim: () => 0, now: moved(0.02) };
    const fleet = ['a', 'b', 'c'].flatMap((actor) => times(8, honest(actor, 1, 0.02)));
    for (let i = 0; i < 2; i += 1) await step([...fleet, ...times(8, high)]);
    assert.deepEqual(names(), ['d fleet']);
    assert(events[0]!.gap > events[0]!.bound);
  });

  it('the audit tolerates an actor whose hardware is less exact than that of the others', async () => {
    const coarse: Sample = { ...honest('d', 1, 0.2), now: moved(0.6) };
    const fleet = ['a', 'b', 'c'].flatMap((actor) => times(8, honest(actor, 1, 0.2)));
    for (let i = 0; i < 10; i += 1) await step([...fleet, ...times(8, coarse)]);
    assert.deepEqual(names(), []);
  });

  it('the audit compares an actor with at least two others', async () => {
    const high: Sample = { actor: 'd', age: 1, claim: () => 0, now: moved(0.02) };
    for (let i = 0; i < 5; i += 1) {
      await step([...times(8, honest('a', 1, 0.02)), ...times(8, high), ...times(8, honest('b'))]);
    }
    assert.deepEqual(names(), []);
  });

  it('the audit compares claims at staleness 0 with the weights that sampled', async () => {
    const hot: Sample = { actor: 'd', age: 0, claim: (logprob) => 0.5 * logprob, now: same };
    await step([...times(4, honest('a')), ...times(4, hot)]);
    assert.deepEqual(names(), ['d gap']);
  });

  it('the audit compares no claim exactly once the weights have moved: not in a later substep, nor on stale data', async () => {
    for (let i = 0; i < 5; i += 1) {
      await step([
        ...times(4, honest('a')),
        ...times(4, { ...honest('b', 0, 0.2), substep: 1 }),
        ...times(4, honest('c', 1, 0.2)),
      ]);
    }
    assert.deepEqual(names(), []);
  });

  it('the audit quarantines an actor at its third group refused for impossible claims', async () => {
    await audit.refused('d', 1);
    await audit.refused('c', 1);
    await audit.refused('d', 2);
    assert.deepEqual(names(), []);
    await audit.refused('d', 3);
    await audit.refused('d', 3);
    assert.deepEqual(names(), ['d impossible']);
    assert.deepEqual(audit.quarantined, ['d']);
  });

  it('the audit ends the run when all live actors have been quarantined for a minute', async () => {
    for (let i = 0; i < 3; i += 1) await audit.refused('a', 1);
    await audit.convict({ actor: 'b', gap: 2, bound: 1, groups: 2, why: 'replay' }, 1);
    const look = (atMs: number, ...live: string[]) => {
      now = atMs;
      audit.checkLiveActors(live);
      return audit.signal.aborted;
    };
    assert(!look(0, 'a', 'b'));
    assert(!look(59_000, 'a', 'b'));
    assert(!look(60_000, 'a', 'c')); // a new actor
    assert(!look(200_000)); // no live actor: all may be restarting
    assert(!look(300_000, 'a'));
    assert(!look(359_000, 'b', 'a'));
    assert(look(360_000, 'b', 'a'));
    assert.match(
      audit.reason!,
      /^every live actor is quarantined: a \(impossible\), b \(replay\)$/,
    );
  });

  it('the fleet divergence leaves out a deviating minority of actors', async () => {
    const low: Sample = { actor: 'd', age: 1, claim: (logprob) => logprob - 0.15, now: moved(4) };
    const { 'kl_sample_train_v2/fleet': kl } = await step([
      ...times(4, honest('a')),
      ...times(4, honest('b')),
      ...times(4, low),
    ]);
    assert.equal(kl, 0);
    const fleet = (await step(['a', 'b', 'c'].map((actor) => honest(actor, 1, 4))))[
      'kl_sample_train_v2/fleet'
    ];
    assert(fleet! > 5, String(fleet)); // all of them show it
    const alone = (await step([honest('a', 1, 4)]))['kl_sample_train_v2/fleet'];
    assert(alone! > 5, String(alone));
  });

  it('the fleet divergence is not finite when the weights are broken', async () => {
    const broken: Sample = { actor: 'a', age: 0, claim: same, now: () => NaN };
    const { 'kl_sample_train_v2/fleet': kl } = await step([broken, honest('b'), honest('c')]);
    assert(Number.isNaN(kl));
    assert.deepEqual(names(), []);
  });

  it('the audit checks only the configured share of the groups', async () => {
    start(0);
    const low: Sample = { actor: 'd', age: 1, claim: (logprob) => logprob - 9, now: same };
    await step([...times(8, honest('a')), ...times(4, low)]);
    assert.deepEqual(names(), []);
  });
});
