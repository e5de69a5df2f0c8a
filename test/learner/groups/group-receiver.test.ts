import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { Admission } from '../../../learner/groups/admission.js';
import { TokenAccount } from '../../../learner/cost/token-account.js';
import { Changes } from '../../../shared/base/changes.js';
import { BrokenPolicyWatch } from '../../../learner/stop/broken-policy-watch.js';
import { NoSignalWatch } from '../../../learner/stop/no-signal-watch.js';
import { Certificates } from '../../../learner/audit/certificates.js';
import { GroupReceiver } from '../../../learner/groups/group-receiver.js';
import type { ArrivedGroup } from '../../../learner/groups/check-scored-group.js';
import { GroupStats } from '../../../learner/groups/group-stats.js';
import { atOnce, issueTickets } from '../../../learner/tickets/ticket-issuer.js';
import { TicketSource } from '../../../learner/tickets/ticket-source.js';
import { UnackedGroups } from '../../../learner/groups/unacked-groups.js';
import type { Delivery } from '../../../shared/broker/delivery.js';
import { dropTotals } from '../../../shared/service/telemetry/drops.js';
import { canaryDigest, type Canary } from '../../../shared/wire/canary.js';
import type { Rollout } from '../../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import type { ScoredGroup } from '../../../shared/wire/scored-group.js';
import type { Ticket } from '../../../shared/wire/ticket.js';
import { orderOf, readableId } from '../../../shared/base/ticket-name.js';
import { messageIdOf, newTicketKey, TicketIds } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/log.js';
import { gate } from '../../support/waiting.js';
import { runConfig, rollout, rolloutGroup, scoredGroup } from '../../support/messages.js';

const config = runConfig({ groupSize: 2, sampling: { temperature: 1, maxTokens: 4 } });
const limits = {
  groupsPerBatch: 2,
  numSubsteps: 1,
  numMinibatches: 1,
  maxStepsOffPolicy: 1,
  windowPolicy: 'wait',
  maxSteps: Infinity,
} as const;
const mixed = ['1', '0'];
const noCause = { kind: 'other' } as const;
const noPast = { version: 0, issued: 0 };
const ids = new TicketIds(newTicketKey());
const nothing = { margin: 4, state: undefined, ids };

/** A group receiver without a broker; `settled` records how each delivery was settled. */
class Bench {
  readonly tickets: TicketSource;
  readonly unacked = new UnackedGroups();
  readonly account = new TokenAccount();
  readonly admission: Admission<ArrivedGroup>;
  readonly receiver: GroupReceiver;
  readonly groupStats = new GroupStats();
  readonly brokenPolicy = new BrokenPolicyWatch({
    ...{ groupsPerBatch: 2, firstVersion: 0, log: silent },
    isBroken: () => Promise.resolve(true),
  });
  readonly noSignal = new NoSignalWatch(0);
  readonly published: Ticket[] = [];
  readonly settled: string[] = [];
  readonly unanswered: string[] = []; // tickets that ended without a message
  readonly accused: string[] = []; // actors reported for impossible logprobs or a wrong canary
  readonly certificates = new Certificates();
  lead = Promise.resolve(); // the answer to each renewal of the leader lease
  readonly blamed: (string | undefined)[] = []; // the sender of each dead letter
  readonly #changes = new Changes();
  #seq = 0;

  constructor(
    isResumed = false,
    start = noPast,
    over: Partial<RunConfig> = {},
    maxEarlyBytes?: number,
  ) {
    const settings = { ...config, ...over };
    this.tickets = new TicketSource(settings, ['p-0', 'p-1', 'p-2'], {
      margin: 1,
      state: undefined,
      ids,
    });
    const { version, issued } = start;
    const counts = {
      issued,
      trained: 0,
      skippedZeroVariance: 0,
      stale: 0,
      dead: 0,
      outstanding: issued,
    };
    const table = { nextOrder: issued, consumedBelow: 0, consumedAbove: [], counts };
    this.admission = new Admission(limits, { step: 0, version, table });
    this.receiver = new GroupReceiver({
      audit: {
        isQuarantined: (actor) => actor === 'tamperer',
        refused: (actor) => {
          this.accused.push(actor);
          return Promise.resolve();
        },
      },
      admission: this.admission,
      tickets: this.tickets,
      unacked: this.unacked,
      account: this.account,
      changes: this.#changes,
      groupStats: this.groupStats,
      noSignal: this.noSignal,
      brokenPolicy: this.brokenPolicy,
      onUnanswered: ({ ticketId, attempt, problemId }, reason) => {
        this.unanswered.push(`${readableId(ticketId)}.${attempt} of ${problemId}: ${reason}`);
      },
      vocabSize: 10,
      zeroVariance: settings.zeroVariance,
      isResumed,
      issuedBelow: isResumed ? issued + (maxEarlyBytes === undefined ? 4 : 8) : 0,
      ...(maxEarlyBytes === undefined ? {} : { maxEarlyBytes }),
      log: silent,
      certificates: this.certificates,
      versionAudit: { consider: () => Promise.resolve() },
      selection: { solved: () => Promise.resolve() },
      confirmLead: () => this.lead,
      newestVersion: () => this.admission.publishedVersion,
    });
  }

  /** Issues all tickets that the capacity law allows. */
  async issue(): Promise<void> {
    const full = new AbortController();
    const issuing = issueTickets(
      {
        admission: this.admission,
        tickets: this.tickets,
        receiver: this.receiver,
        changes: this.#changes,
        pace: atOnce,
        publish: (ticket) => {
          this.published.push(ticket);
          return Promise.resolve();
        },
        onReplaced: ({ seq, scored }) => {
          this.unacked.replace(seq, messageIdOf(scored.group.ticket));
        },
      },
      full.signal,
    );
    await new Promise((resolve) => setImmediate(resolve));
    full.abort();
    await issuing;
  }

  /** Returns the scored group of a ticket, as an honest actor and reward service would send it. */
  group(order: number, exactRewards = mixed, over: Partial<Ticket> = {}): ScoredGroup {
    const content = this.tickets.at(order, over.attempt ?? 0);
    const ticket = { ...content, issuedAtVersion: 0, ...over };
    const group = rolloutGroup({ ticket });
    const { scores } = scoredGroup({ group });
    return scoredGroup({
      group,
      scores: scores.map((score, i) => ({ ...score, exactReward: exactRewards[i]! })),
    });
  }

  deliver(value: ScoredGroup, seq = ++this.#seq): Promise<void> {
    const settle = (outcome: string) => () => {
      this.settled.push(`${seq} ${outcome}`);
      return Promise.resolve();
    };
    const lease = { seq, working: () => undefined, ack: settle('ack') };
    const delivery: Delivery<ScoredGroup> = {
      ...lease,
      lease,
      value,
      subject: 'scored',
      deliveryCount: 1,
      nak: () => undefined,
      dead: (reason, sender) => {
        this.blamed.push(sender);
        return settle(`dead ${reason}`)();
      },
    };
    return this.receiver.receive(delivery);
  }

  /** Messages that a checkpoint taken now would cover. */
  get covered(): number[] {
    return this.unacked
      .covered((order) => this.admission.table.isConsumed(order))
      .map(({ lease }) => lease.seq);
  }

  get states(): string[] {
    return this.admission.table.entries().map(({ order, state }) => `${order} ${state}`);
  }
}

const canary: Canary = {
  ...{ temperature: 1, arithmetic: 'fp32', texts: [Int32Array.of(3, 4)], places: [[0, 1]] },
  logprobs: Float32Array.of(-1),
};

describe('the group receiver with four tickets issued', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = new Bench();
    await bench.issue();
    assert.equal(bench.published.length, 4);
  });

  it('an admitted group and its message are kept until a checkpoint covers them', async () => {
    await bench.deliver(bench.group(2));
    assert.equal(bench.states[2], '2 arrived');
    assert.deepEqual([bench.settled, bench.covered], [[], []]);
  });

  it('a receiver with much for later tickets waits, until a group is missing that a step needs now', async () => {
    const late = new Bench(true, noPast, {}, 5_000);
    await late.issue();
    const { signal } = new AbortController();
    const isReady = async () => {
      const nothing = new Promise((resolve) => setImmediate(resolve, false));
      return (await Promise.race([late.receiver.ready(signal).then(() => true), nothing])) === true;
    };
    await late.deliver(late.group(6)); // its ticket is not issued yet
    await late.deliver(late.group(7));
    assert(await isReady()); // the tickets that are issued have no group
    for (const order of [0, 1, 2, 3]) await late.deliver(late.group(order));
    assert(!(await isReady()));
    const trainStep = () => {
      late.admission.cut();
      late.admission.confirmStep();
      late.admission.recordPublished(late.admission.version);
    };
    const waiting = late.receiver.ready(signal);
    trainStep();
    await late.issue(); // tickets 4 and 5, of which nothing has come
    await waiting;
    for (const order of [4, 5]) await late.deliver(late.group(order));
    assert(!(await isReady()));
    trainStep();
    await late.issue(); // tickets 6 and 7, whose groups are no longer early
    assert.deepEqual(late.states.slice(-2), ['6 arrived', '7 arrived']);
    assert(await isReady());
  });

  it('the receiver records the version at which a group arrived, apart from the one that sampled it', async () => {
    await bench.deliver(bench.group(0));
    await bench.deliver(bench.group(1));
    bench.admission.cut();
    bench.admission.confirmStep();
    bench.admission.recordPublished(1);
    await bench.deliver(bench.group(2));
    assert.equal(bench.admission.table.entry(2)?.group?.arrivedAtVersion, 1);
    assert.equal(bench.admission.table.entry(2)?.group?.sampledBy[0], 0);
  });

  it('a group without variance in its exact rewards is skipped, and exactly one more ticket is issued', async () => {
    await bench.deliver(bench.group(0, ['1/10', '2/20']));
    assert.equal(bench.admission.table.counts.skippedZeroVariance, 1);
    assert.deepEqual(bench.covered, [1]);
    await bench.issue();
    assert.deepEqual(
      bench.published.map(({ order }) => order),
      [0, 1, 2, 3, 4],
    );
  });

  it('a group without variance is kept for training if zeroVariance is train', async () => {
    const keeping = new Bench(false, noPast, { zeroVariance: 'train' });
    await keeping.issue();
    await keeping.deliver(keeping.group(0, ['0', '0']));
    assert.equal(keeping.states[0], '0 arrived');
    assert.equal(keeping.admission.table.counts.skippedZeroVariance, 0);
  });

  it('only the first group of a ticket counts, and both messages are kept until a checkpoint covers them', async () => {
    await bench.deliver(bench.group(0, ['0', '0']));
    await bench.deliver(bench.group(0));
    await bench.deliver(bench.group(1));
    await bench.deliver(bench.group(1));
    assert.equal(bench.states[0], '1 arrived');
    assert.deepEqual([bench.settled, bench.covered], [[], [1, 2]]);
  });

  it('the tokens of a group that is dropped are counted as wasted', async () => {
    const count = () => dropTotals()['tokens_wasted/duplicate'] ?? 0;
    await bench.deliver(bench.group(1));
    const before = count();
    const again = bench.group(1);
    await bench.deliver(again);
    const { rollouts } = again.group;
    assert.equal(count() - before, rollouts[0]!.tokens.length + rollouts[1]!.tokens.length);
  });

  it('a message that is delivered twice is not acknowledged as a duplicate of itself', async () => {
    await bench.deliver(bench.group(0), 7);
    await bench.deliver(bench.group(0), 7);
    await bench.deliver(bench.group(1, ['0', '0']), 8);
    await bench.deliver(bench.group(1, ['0', '0']), 8);
    assert.deepEqual(bench.settled, []);
  });

  it('a group is received under the number of another one that the server has lost', async () => {
    await bench.deliver(bench.group(0), 7);
    await bench.deliver(bench.group(1), 7);
    assert.deepEqual(bench.states.slice(0, 2), ['0 arrived', '1 arrived']);
  });

  const refusals: [reason: string, make: (bench: Bench) => ScoredGroup][] = [
    ['unknown_ticket', (b) => b.group(9)],
    ['altered_ticket', (b) => b.group(0, mixed, { problemId: 'p-9' })],
    ['altered_ticket', (b) => b.group(0, mixed, { issuedAtVersion: 1 })],
    [
      'altered_ticket',
      (b) => b.group(0, mixed, { samplingParams: { temperature: 0, maxTokens: 4, seed: 0 } }),
    ],
    ['token_out_of_range', (b) => withRollout(b.group(0), { tokens: Int32Array.of(1, 2, 10) })],
    ['too_many_tokens', (b) => withRollout(b.group(0), rollout(5))],
    ['unknown_version', (b) => withRollout(b.group(0), { versions: [[1, 3]] })],
    ['no_prompt', (b) => withPrompt(b.group(0), [])],
    ['token_out_of_range', (b) => withPrompt(b.group(0), [3, 11])],
  ];
  for (const [reason, make] of refusals) {
    it(`a bad group is dead-lettered as ${reason}`, async () => {
      const scored = make(bench);
      await bench.deliver(scored);
      assert.deepEqual(bench.settled, [`1 dead ${reason}`]);
      assert.deepEqual(bench.blamed, ['actor-0']);
      // The ticket of a refused group is dead; an unknown ticket leaves the table unchanged.
      assert.equal(bench.admission.table.counts.dead, reason === 'unknown_ticket' ? 0 : 1);
    });
  }

  it('a duplicate is dropped as such, whatever is in it', async () => {
    await bench.deliver(bench.group(0, ['1', '1'])); // skipped
    for (const [reason, make] of refusals) {
      const isOfIt = reason !== 'unknown_ticket';
      if (isOfIt) await bench.deliver(make(bench));
    }
    assert.deepEqual([bench.settled, bench.accused], [[], []]);
  });

  it('a learner that has lost its lease refuses no group, which may be of a ticket of its successor', async () => {
    const lost = new Error('the lease is lost');
    bench.lead = Promise.reject(lost);
    for (const [, make] of refusals) await assert.rejects(bench.deliver(make(bench)), lost);
    assert.deepEqual([bench.settled, bench.unacked.size], [[], 0]);
    assert.deepEqual(bench.states, ['0 issued', '1 issued', '2 issued', '3 issued']);
    await bench.deliver(bench.group(0)); // what it knows needs no lease
    assert.equal(bench.states[0], '0 arrived');
  });

  it('a group whose version is published while the lease is renewed is not refused', async () => {
    const renewed = gate();
    bench.lead = renewed.opened;
    const receiving = bench.deliver(withRollout(bench.group(0), { versions: [[1, 3]] }));
    bench.admission.recordPublished(1);
    renewed.open();
    await receiving;
    assert.deepEqual(bench.settled, []);
    assert.equal(bench.states[0], '0 arrived');
  });

  const impossible: [claim: string, logprobs: number[], other?: Partial<Rollout>][] = [
    ['logprobs too low for three sampled tokens', [-50, -50, -50]],
    ['one token of negligible probability', [-0.1, -45, -0.1]],
    ['two certain tokens in the same place', [0, 0, 0], { tokens: Int32Array.of(4, 2, 3) }],
  ];
  for (const [claim, logprobs, other] of impossible) {
    it(`a group with ${claim} is refused, its actor reported and its ticket reissued`, async () => {
      const claims = { behaviorLogprobs: Float32Array.from(logprobs) };
      const scored = withRollout(bench.group(0), { ...claims, ...other });
      if (other !== undefined) scored.group.rollouts[1] = rollout(3, claims);
      await bench.deliver(scored);
      assert.deepEqual(bench.settled, ['1 dead impossible_logprobs']);
      assert.deepEqual(bench.accused, ['actor-0']);
      assert.equal(bench.states[0], '0 retry');
      // The learner reads its own dead letter, which must not end the second attempt.
      bench.receiver.recordDeath(0, 0, {
        stage: 'learner',
        reason: 'impossible_logprobs',
        cause: noCause,
      });
      await bench.issue();
      const { order, attempt } = bench.published.at(-1)!;
      assert.deepEqual([order, attempt, bench.states[0]], [0, 1, '0 issued']);
      await bench.deliver(bench.group(0, mixed, { attempt: 1 }));
      assert.equal(bench.states[0], '0 arrived');
    });
  }

  it('a group whose certificate names another canary is refused, its actor reported and its ticket reissued', async () => {
    const certificate = { engine: 'x', arithmetic: 'fp32' as const };
    bench.certificates.add({ version: 0, canary });
    const wrong: [number, string][] = [[0, 'e'.repeat(64)]];
    const scored = bench.group(0);
    scored.group.certificate = { ...certificate, canaries: wrong };
    await bench.deliver(scored);
    assert.deepEqual(bench.settled, ['1 dead wrong_canary']);
    assert.deepEqual([bench.accused, bench.states[0]], [['actor-0'], '0 retry']);
    await bench.issue();
    const right = bench.group(0, mixed, { attempt: 1 });
    right.group.certificate = { ...certificate, canaries: [[0, canaryDigest(0, canary)]] };
    await bench.deliver(right);
    assert.equal(bench.states[0], '0 arrived');
    assert.equal(bench.certificates.metrics['groups/without_certificate'], 0);
    await bench.deliver(bench.group(1));
    assert.equal(bench.certificates.metrics['groups/without_certificate'], 1);
  });

  it('a late false group of the first attempt does not affect the second attempt', async () => {
    bench.admission.table.retryOrEnd(0);
    await bench.issue();
    await bench.deliver(
      withRollout(bench.group(0), { behaviorLogprobs: Float32Array.of(-50, -50, -50) }),
    );
    assert.equal(bench.states[0], '0 issued');
  });

  it('a malformed late answer to the first attempt leaves the second attempt to its actor', async () => {
    bench.admission.table.retryOrEnd(0);
    await bench.issue();
    await bench.deliver(withRollout(bench.group(0), { tokens: Int32Array.of(1, 2, 99) }));
    assert.deepEqual([bench.settled, bench.states[0]], [['1 dead token_out_of_range'], '0 issued']);
  });

  it('a group sampled by a version older than its ticket allows is refused', async () => {
    const later = new Bench(true, { version: 3, issued: 2 });
    await later.deliver(later.group(0, mixed, { issuedAtVersion: 2 })); // its tokens are of version 0
    assert.deepEqual(later.settled, ['1 dead too_old_version']);
  });

  it('a dead-lettered ticket counts as dead, unless its group has arrived', async () => {
    await bench.deliver(bench.group(0));
    bench.receiver.recordDeath(0, 0, { stage: 'actor', reason: 'test', cause: noCause });
    bench.receiver.recordDeath(1, 0, { stage: 'actor', reason: 'test', cause: noCause });
    bench.receiver.recordDeath(1, 0, { stage: 'actor', reason: 'repeated', cause: noCause });
    assert.equal(bench.admission.table.counts.dead, 1);
    assert.deepEqual(bench.states, ['0 arrived', '2 issued', '3 issued']);
  });
});

describe('the group receiver and a broken policy', () => {
  it('a policy counts as broken when every answer to it is a death by non-finite logprobs', async () => {
    const bench = new Bench();
    const death = {
      stage: 'actor',
      reason: 'NaN',
      cause: { kind: 'not_finite', version: 0 },
    } as const;
    for (let order = 0; order < 11; order += 1) {
      await bench.issue();
      if (order === 0) await bench.deliver(bench.group(0, ['0', '0']));
      else bench.receiver.recordDeath(order, 0, death);
    }
    assert.equal(bench.brokenPolicy.breakage.groups, 10);
    assert(!bench.brokenPolicy.signal.aborted);
    await bench.deliver(bench.group(11));
    assert.equal(bench.brokenPolicy.breakage.groups, 0);
    for (let order = 12; order < 23; order += 1) {
      await bench.issue();
      bench.receiver.recordDeath(order, 0, { stage: 'actor', reason: 'test', cause: noCause }); // another cause
      assert.equal(bench.brokenPolicy.breakage.groups, 0);
    }
    for (let order = 23; order < 34; order += 1) {
      await bench.issue();
      bench.receiver.recordDeath(order, 0, death);
    }
    await new Promise((resolve) => setImmediate(resolve)); // lets the policy probe finish
    assert(bench.brokenPolicy.signal.aborted);
    assert(Object.keys(dropTotals()).includes('dropped/actor/not_finite'));
  });
});

describe('the group receiver and tickets that were never issued', () => {
  const death = { stage: 'actor', reason: 'forged', cause: noCause };
  const orders = (bench: Bench) => bench.published.map(({ order }) => order);

  it('deaths ahead of the sequence are ignored, except of the ticket that is being published', async () => {
    const bench = new Bench();
    await bench.issue();
    for (const order of [4, 5, 6, 1_000]) bench.receiver.recordDeath(order, 0, death);
    for (const order of [0, 1, 2, 3]) await bench.deliver(bench.group(order, ['0', '0']));
    await bench.issue();
    assert.deepEqual(orders(bench), [0, 1, 2, 3, 5, 6, 7, 8]);
    assert.equal(bench.admission.table.counts.dead, 1);
  });

  it('the dead letter of a refused forged group does not kill the ticket that is issued later', async () => {
    const bench = new Bench();
    await bench.issue();
    await bench.deliver(bench.group(6));
    assert.deepEqual(bench.settled, ['1 dead unknown_ticket']);
    bench.receiver.recordDeath(6, 0, {
      stage: 'learner',
      reason: 'unknown_ticket',
      cause: noCause,
    }); // from the dead letters
    for (const order of [0, 1, 2, 3]) await bench.deliver(bench.group(order, ['0', '0']));
    await bench.issue();
    assert.deepEqual(orders(bench).slice(4), [4, 5, 6, 7]);
  });

  it('a group or a death with a guessed ticket id does not kill the ticket', async () => {
    const bench = new Bench();
    await bench.issue();
    for (const ticketId of ['train-00000002', `train-00000002-${'0'.repeat(16)}`, ids.of(2, 1)]) {
      await bench.deliver(bench.group(2, mixed, { ticketId, problemId: 'p-9' }));
      assert.equal(bench.tickets.orderOf({ ticketId, attempt: 0 }), undefined); // the lookup that deaths use
    }
    const refused = [1, 2, 3].map((seq) => `${seq} dead unknown_ticket`);
    assert.deepEqual([bench.settled, bench.states[2]], [refused, '2 issued']);
  });

  it('a restored learner accepts only orders that an earlier learner can have reached', async () => {
    const bench = new Bench(true, { version: 3, issued: 0 }); // issuedBelow is 4
    for (const order of [3, 4, 5]) bench.receiver.recordDeath(order, 0, death);
    await bench.deliver(bench.group(3));
    await bench.deliver(bench.group(4));
    assert.deepEqual(bench.settled, ['2 dead unknown_ticket']);
    await bench.issue();
    assert.deepEqual(orders(bench), [0, 1, 2]);
    for (const order of [0, 1, 2]) await bench.deliver(bench.group(order, ['0', '0']));
    await bench.issue();
    assert.deepEqual(orders(bench), [0, 1, 2, 4, 5, 6]);
  });

  it('deaths of attempts that cannot exist, or not yet, are ignored', async () => {
    const bench = new Bench();
    await bench.issue();
    bench.receiver.recordDeath(0, 2, death);
    assert.equal(bench.states[0], '0 issued');
    await bench.deliver(bench.group(0));
    bench.receiver.recordDeath(0, 1, death); // the second attempt was not issued
    assert(!bench.receiver.isAnswered(0, 1));
  });

  it('a death is counted under a known stage, whatever the dead letter says', async () => {
    const bench = new Bench();
    await bench.issue();
    bench.receiver.recordDeath(0, 0, { stage: 'gpu-17', reason: 'forged', cause: noCause });
    bench.receiver.recordDeath(1, 0, { stage: 'reward', reason: 'test', cause: noCause });
    const names = Object.keys(dropTotals());
    assert(names.includes('dropped/unknown/dead_letter'));
    assert(names.includes('dropped/reward/dead_letter'));
    assert(!names.some((name) => name.includes('gpu-17')));
  });
});

describe('the group receiver of a learner restored with two tickets issued', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = new Bench(true, { version: 3, issued: 2 });
  });

  it('a group of a ticket that only lost steps issued is kept until the ticket is issued again', async () => {
    await bench.deliver(bench.group(2));
    assert.deepEqual([bench.settled, bench.states], [[], ['0 issued', '1 issued']]);
    await bench.issue();
    assert.deepEqual(
      bench.published.map(({ order }) => order),
      [3],
    ); // the group of order 2 has arrived
    assert.deepEqual(bench.states, ['0 issued', '1 issued', '2 arrived', '3 issued']);
  });

  it('a ticket whose repetition the stream dropped accepts the group of the first copy', async () => {
    await bench.issue();
    assert.equal(bench.published[0]!.issuedAtVersion, 3);
    await bench.deliver(bench.group(2, mixed, { issuedAtVersion: 0 }));
    assert.deepEqual(bench.settled, []);
    assert.equal(bench.states[2], '2 arrived');
    await bench.deliver(bench.group(3, mixed, { issuedAtVersion: 4 }));
    assert.deepEqual(bench.settled, ['2 dead altered_ticket']); // no learner issued it that late
  });

  it('no actor is to blame if the canary of a group from before the crash is another, as of a version that was lost', async () => {
    bench.certificates.add({ version: 3, canary });
    const withLost = (order: number) => {
      const scored = bench.group(order);
      scored.group.certificate = {
        engine: 'x',
        arithmetic: 'fp32',
        canaries: [[3, 'e'.repeat(64)]],
      };
      for (const rollout of scored.group.rollouts) rollout.versions = [[3, rollout.tokens.length]];
      return scored;
    };
    await bench.deliver(withLost(0));
    assert.deepEqual([bench.settled, bench.accused], [['1 dead wrong_canary'], []]);
    await bench.issue(); // by this learner
    await bench.deliver(withLost(3));
    assert.deepEqual(bench.accused, ['actor-0']);
  });

  it('a ticket that died before the crash is not published again', async () => {
    bench.receiver.recordDeath(2, 0, {
      stage: 'actor',
      reason: 'before the crash',
      cause: noCause,
    });
    await bench.issue();
    assert.deepEqual(
      bench.published.map(({ order }) => order),
      [3, 4],
    );
    assert.equal(bench.admission.table.counts.dead, 1);
  });

  it('a restored learner still refuses a group with an altered ticket', async () => {
    await bench.deliver(bench.group(2, mixed, { problemId: 'p-9' }));
    assert.deepEqual(bench.settled, ['1 dead altered_ticket']);
  });

  it('a restored learner accepts the second attempt of a ticket that lost steps refused as stale', async () => {
    await bench.deliver(bench.group(0, mixed, { attempt: 1 }));
    assert.equal(bench.states[0], '0 arrived');
  });
});

describe('the group receiver of a learner restored to before the second attempt of a ticket', () => {
  // For an hour the stream drops repetitions, so the answer to either attempt must be kept.
  const outdated = { stage: 'actor', reason: 'too old', cause: { kind: 'outdated' } } as const;
  let bench: Bench;
  beforeEach(() => {
    bench = new Bench(true, { version: 9, issued: 4 });
  });

  it('a kept second attempt is used once the first is refused again, in either order of arrival', async () => {
    for (const attempts of [
      [0, 1],
      [1, 0],
    ]) {
      bench = new Bench(true, { version: 9, issued: 0 });
      for (const attempt of attempts) await bench.deliver(bench.group(0, mixed, { attempt }));
      await bench.issue();
      bench.admission.refuse();
      await bench.issue();
      assert.equal(bench.states[0], '0 arrived', String(attempts));
      assert.equal(bench.admission.table.entry(0)!.attempt, 1);
      assert(!bench.published.some(({ order }) => order === 0));
      assert.deepEqual(bench.settled, []);
    }
  });

  it('a kept second attempt is also used if the ticket was in the checkpoint', async () => {
    await bench.deliver(bench.group(0));
    await bench.deliver(bench.group(0, mixed, { attempt: 1 }));
    bench.admission.refuse();
    await bench.issue();
    assert.deepEqual(bench.published, []);
    assert.equal(bench.admission.table.entry(0)!.attempt, 1);
    assert.deepEqual(bench.covered, [1]); // the first attempt, as the second has replaced it
  });

  it('a second attempt is used although the dead letter of the first, which an earlier session refused, comes back', async () => {
    for (const reason of ['impossible_logprobs', 'wrong_canary']) {
      bench = new Bench(true, { version: 9, issued: 4 });
      bench.receiver.recordDeath(0, 0, { stage: 'learner', reason, cause: noCause });
      await bench.deliver(bench.group(0, mixed, { attempt: 1 }));
      await bench.issue();
      assert.equal(bench.states[0], '0 arrived', reason);
      assert.equal(bench.admission.table.counts.dead, 0);
    }
  });

  it('a kept death of the second attempt applies once the first is refused again', async () => {
    await bench.deliver(bench.group(0));
    bench.receiver.recordDeath(0, 1, outdated);
    assert.equal(bench.states[0], '0 arrived');
    bench.admission.refuse();
    await bench.issue();
    assert.deepEqual(
      bench.published.filter(({ order }) => order === 0),
      [],
    );
    assert(bench.admission.table.isConsumed(0));
    assert.equal(bench.admission.table.counts.stale, 2);
  });

  it('the group of one attempt is kept while the other may still be needed', async () => {
    await bench.deliver(bench.group(0, ['0', '0'], { attempt: 1 }));
    await bench.deliver(bench.group(0));
    assert(bench.admission.table.isConsumed(0));
    assert.deepEqual([bench.settled, bench.covered], [[], [1, 2]]);
  });

  it('a late group of the first attempt does not replace the second attempt', async () => {
    await bench.deliver(bench.group(0));
    bench.admission.refuse();
    await bench.issue();
    await bench.deliver(bench.group(0));
    assert.equal(bench.states[0], '0 issued');
    await bench.deliver(bench.group(0, mixed, { attempt: 1 }));
    assert.equal(bench.states[0], '0 arrived');
  });
});

describe('the group receiver and a stale group', () => {
  it('a stale group is covered by a checkpoint only once its second attempt is published', async () => {
    const bench = new Bench(true, { version: 9, issued: 4 });
    await bench.deliver(bench.group(0)); // of version 0
    bench.admission.refuse();
    assert.deepEqual(bench.covered, []);
    await bench.issue();
    assert.deepEqual(
      bench.published.map(({ order, attempt, issuedAtVersion }) => [
        order,
        attempt,
        issuedAtVersion,
      ]),
      [[0, 1, 9]],
    );
    assert.deepEqual(bench.covered, [1]);
  });
});

describe('the group receiver and a quarantined actor', () => {
  it("a quarantined actor's group is not trained on, and its ticket is reissued even without variance", async () => {
    const bench = new Bench();
    await bench.issue();
    const scored = bench.group(0, ['1', '1']);
    await bench.deliver({ ...scored, group: { ...scored.group, actor: 'tamperer' } });
    const isExcluded = ({ scored: { group } }: ArrivedGroup) => group.actor === 'tamperer';
    const refused = bench.admission.refuse(isExcluded);
    assert.deepEqual(
      refused.map(({ order, outcome }) => [order, outcome]),
      [[0, 'reissue']],
    );
    await bench.issue();
    assert.deepEqual([bench.published.at(-1)?.order, bench.published.at(-1)?.attempt], [0, 1]);
    assert.deepEqual(bench.covered, [1]);
    await bench.deliver(bench.group(0, mixed, { attempt: 1 }));
    assert.equal(bench.states[0], '0 arrived');
    assert.deepEqual(bench.admission.refuse(isExcluded), []);
  });
});

describe('the group receiver and the streaks that end a run', () => {
  it('only the group of an actor that is not quarantined ends them', async () => {
    const bench = new Bench();
    await bench.issue();
    await bench.deliver(bench.group(0, ['1', '1']));
    bench.brokenPolicy.died(0, bench.admission.table);
    const streaks = () => [bench.noSignal.streak.groups, bench.brokenPolicy.breakage.groups];
    const scored = bench.group(1);
    await bench.deliver({ ...scored, group: { ...scored.group, actor: 'tamperer' } });
    assert.deepEqual(streaks(), [1, 1]);
    await bench.deliver(bench.group(2));
    assert.deepEqual(streaks(), [0, 0]);
  });
});

describe('the group receiver and a withdrawn ticket', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = new Bench();
    await bench.issue();
    bench.receiver.recordWithdrawal(1, 0);
  });
  const reissued = () => bench.published.slice(4).map(({ order, attempt }) => [order, attempt]);

  it('a withdrawn ticket is issued once more, and the second time replaced by a new ticket', async () => {
    await bench.issue();
    bench.receiver.recordWithdrawal(1, 0); // reported twice
    bench.receiver.recordWithdrawal(1, 1);
    await bench.issue();
    assert.deepEqual(reissued(), [
      [1, 1],
      [4, 0],
    ]);
    const { issued, stale, outstanding } = bench.admission.table.counts;
    assert.deepEqual([issued, stale, outstanding], [6, 2, 4]);
  });

  it('the second withdrawal of a ticket is reported, since no message tells that it has ended', async () => {
    await bench.issue();
    assert.deepEqual(bench.unanswered, []);
    const { problemId } = bench.tickets.at(1, 1);
    bench.receiver.recordWithdrawal(1, 1);
    assert.deepEqual(bench.unanswered, [
      `train-00000001.1 of ${problemId}: withdrawn twice: each time an actor held it too long`,
    ]);
  });

  it('a lost ticket is reported as well', async () => {
    await bench.issue();
    const { problemId } = bench.tickets.at(2, 0);
    bench.receiver.recordLoss(2);
    assert.deepEqual(bench.unanswered, [
      `train-00000002.0 of ${problemId}: lost: it is in no queue, and nothing answered it`,
    ]);
  });

  it('an answer that arrives before the reissue makes the second attempt unnecessary', async () => {
    await bench.deliver(bench.group(1));
    await bench.issue();
    assert.deepEqual([reissued(), bench.states[1]], [[], '1 arrived']);
  });

  it('an answer that arrives after the reissue is dropped, and only the second attempt counts', async () => {
    await bench.issue();
    await bench.deliver(bench.group(1));
    assert.equal(bench.states[1], '1 issued');
    await bench.deliver(bench.group(1, mixed, { attempt: 1 }));
    await bench.deliver(bench.group(1));
    assert.equal(bench.states[1], '1 arrived');
    assert.equal(bench.admission.table.entry(1)?.group?.scored.group.ticket.attempt, 1);
  });

  it('a withdrawn attempt counts in the length distance', async () => {
    await bench.deliver(bench.group(0, ['1', '1']));
    assert.equal(bench.groupStats.take()['length_ks_distance'], 0.5);
  });

  it('a ticket whose group has just arrived is not withdrawn', async () => {
    await bench.deliver(bench.group(2));
    bench.receiver.recordWithdrawal(2, 0);
    assert.equal(bench.states[2], '2 arrived');
  });
});

describe('the group receiver and a group that became too old during sampling', () => {
  const outdated = { stage: 'actor', reason: 'too old', cause: { kind: 'outdated' } } as const;
  let bench: Bench;
  beforeEach(async () => {
    bench = new Bench();
    await bench.issue();
    bench.receiver.recordDeath(1, 0, outdated);
  });

  it('an outdated ticket is issued once more, and its first attempt counts as stale', async () => {
    assert.equal(bench.states[1], '1 retry');
    await bench.issue();
    assert.deepEqual(
      bench.published.slice(4).map(({ order, attempt }) => [order, attempt]),
      [[1, 1]],
    );
    const { issued, stale, outstanding } = bench.admission.table.counts;
    assert.deepEqual([issued, stale, outstanding], [5, 1, 4]);
  });

  it('an outdated attempt counts in the length distance', async () => {
    await bench.deliver(bench.group(0, ['1', '1']));
    assert.equal(bench.groupStats.take()['length_ks_distance'], 0.5);
  });

  it('a ticket that is outdated twice is given up and replaced by a new ticket', async () => {
    await bench.issue();
    bench.receiver.recordDeath(1, 0, outdated); // reported twice
    bench.receiver.recordDeath(1, 1, outdated);
    await bench.issue();
    assert.deepEqual(
      bench.published.slice(4).map(({ order, attempt }) => [order, attempt]),
      [
        [1, 1],
        [4, 0],
      ],
    );
    const { issued, stale, dead, outstanding } = bench.admission.table.counts;
    assert.deepEqual([issued, stale, dead, outstanding], [6, 2, 0, 4]);
  });

  it('a group that arrives after its death as outdated makes the second attempt unnecessary', async () => {
    await bench.deliver(bench.group(1));
    await bench.issue();
    assert.equal(bench.published.length, 4);
    assert.equal(bench.states[1], '1 arrived');
  });

  it('a restored learner gives up a ticket whose two attempts both died as outdated', async () => {
    const restored = new Bench(true, { version: 3, issued: 4 });
    restored.receiver.recordDeath(1, 0, outdated);
    restored.receiver.recordDeath(1, 1, outdated); // the second attempt, issued by the lost steps
    await restored.issue();
    assert.deepEqual(
      restored.published.map(({ order }) => order),
      [4],
    );
    assert.deepEqual(
      [restored.admission.table.counts.stale, restored.admission.table.isConsumed(1)],
      [2, true],
    );
  });
});

describe('the group receiver with difficulty-aware sampling', () => {
  it('no ticket is issued before the ledger determines its problem', async () => {
    const bench = new Bench(false, noPast, { replayShare: 0.5 });
    const orders = () => bench.published.map(({ order }) => order);
    const { table } = bench.admission;
    const { written } = bench.tickets.checkpoint(table, bench.tickets.results); // settles one ticket ahead
    await bench.issue();
    assert.deepEqual(orders(), [0]);
    written();
    await bench.issue();
    assert.deepEqual(orders(), [0, 1, 2, 3]);
  });
});

describe('the sequence of tickets', () => {
  const problems = Array.from({ length: 7 }, (_, i) => `p-${i}`);

  it('a ticket is pinned to the version of its issue if there is a sample lag', () => {
    const newest = new TicketSource(config, problems, nothing).ticketAt(3, 0, 8);
    assert.deepEqual([newest.issuedAtVersion, newest.pinnedVersion], [8, undefined]);
    const lagging = new TicketSource({ ...config, sampleLag: 2 }, problems, nothing);
    assert.deepEqual(lagging.ticketAt(3, 0, 8), { ...newest, pinnedVersion: 8 });
  });

  it('the ticket sequence is a function of the configuration, whatever the order of calls', () => {
    const [a, b] = [
      new TicketSource(config, problems, nothing),
      new TicketSource(config, problems, nothing),
    ];
    const forwards = Array.from({ length: 30 }, (_, order) => a.at(order, 0));
    const backwards = Array.from({ length: 30 }, (_, i) => b.at(29 - i, 0)).reverse();
    assert.deepEqual(forwards, backwards);
    assert.notDeepEqual(
      a.at(0, 0),
      new TicketSource({ ...config, seed: 2 }, problems, nothing).at(0, 0),
    );
  });

  it('every epoch draws each problem once, in a different order', () => {
    const source = new TicketSource(config, problems, nothing);
    const epoch = (n: number) => problems.map((_, i) => source.at(n * 7 + i, 0).problemId);
    assert.deepEqual([...epoch(0)].sort(), problems);
    assert.deepEqual([...epoch(1)].sort(), problems);
    assert.notDeepEqual(epoch(0), epoch(1));
  });

  it('a second attempt has the same problem, another seed and its own id', () => {
    const source = new TicketSource(config, problems, nothing);
    const [first, second] = [source.at(5, 0), source.at(5, 1)];
    assert.equal(second.problemId, first.problemId);
    assert.deepEqual(
      [second, first].map(({ ticketId }) => orderOf(ticketId)),
      [5, 5],
    );
    assert.notEqual(second.ticketId, first.ticketId); // the holder of the first id cannot guess it
    assert.notEqual(second.samplingParams.seed, first.samplingParams.seed);
  });
});

function withRollout(scored: ScoredGroup, over: Parameters<typeof rollout>[1]): ScoredGroup {
  const [first, ...rest] = scored.group.rollouts;
  return { ...scored, group: { ...scored.group, rollouts: [{ ...first!, ...over }, ...rest] } };
}

function withPrompt(scored: ScoredGroup, tokens: number[]): ScoredGroup {
  return { ...scored, group: { ...scored.group, promptTokens: Int32Array.from(tokens) } };
}
