import { messageIdOf } from '../../../shared/wire/ticket-ids.js';
import assert from 'node:assert/strict';
import { EarlyCancel, GroupStale } from '../../../actor/early-cancel.js';
import type { ArrivedGroup } from '../../../learner/groups/check-scored-group.js';
import { atOnce, issueTickets } from '../../../learner/tickets/ticket-issuer.js';
import { orderOf } from '../../../shared/base/ticket-name.js';
import type { Random } from '../../../shared/base/random.js';
import { smallestUsefulVersion } from '../../../shared/rl/staleness.js';
import type { DeathCause } from '../../../shared/wire/death-cause.js';
import type { ScoredGroup } from '../../../shared/wire/scored-group.js';
import type { Ticket } from '../../../shared/wire/ticket.js';
import { rollout, rolloutGroup, scoredGroup } from '../../support/messages.js';
import { never } from '../../support/waiting.js';
import { startSession, limits, Queue, type LearnerSession, type Saved } from './crash-parts.js';

/**
 * A run without processes and sockets, in which learner, actors and server may crash at any moment: the
 * real decisions of learner and actor, on queues that behave as JetStream's. Training must be able to
 * continue from every reachable state.
 */
export class CrashModel {
  readonly #random: Random;
  readonly #tickets = new Queue<Ticket>();
  readonly #scored = new Queue<ScoredGroup>();
  readonly #deaths: { ticket: Ticket; reason: string; cause: DeathCause }[] = [];
  #cancel = new EarlyCancel();
  #actorVersion = 0; // the newest version that actors know of
  #ledger: Saved = { step: 0, version: 0, rewinds: [] };
  #newest = { version: 0, smallestUsefulVersion: 0, consumedBelow: 0 };
  #session: LearnerSession;
  readonly #gone = new Set<number>(); // sequence numbers of messages that a checkpoint has counted
  readonly #refused = new Set<number>(); // settled at once, and not counted by a checkpoint yet

  constructor(random: Random) {
    this.#random = random;
    this.#session = this.#restart(false);
  }

  /** Makes a random move, or none if that is impossible now. */
  async move(): Promise<void> {
    const isOneIn = (n: number): boolean => this.#random.int(n) === 0;
    const moves = isOneIn(16) ? rare : usual;
    switch (moves[this.#random.int(moves.length)]!) {
      case 'crash':
        this.#crash();
        break;
      case 'restart':
        if (isOneIn(2)) this.#tickets.restart();
        else this.#scored.restart();
        break;
      case 'repeat':
        this.#repeat();
        break;
      case 'issue':
        await this.#issue(isOneIn(8));
        break;
      case 'sample':
        this.#sample(isOneIn(24));
        break;
      case 'deliver':
        await this.#deliver();
        break;
      case 'death':
        this.#receiveDeath();
        break;
      case 'version':
        this.#receiveVersion();
        break;
      case 'step':
        this.#step();
        break;
      case 'checkpoint':
        await this.#checkpoint(isOneIn(4));
    }
  }

  /** Lets all pending work finish, without further faults. */
  async settle(): Promise<void> {
    const { held } = this.#tickets;
    this.#receiveVersion();
    while (this.#session.deathsHeard < this.#deaths.length) this.#receiveDeath();
    while (this.#undelivered.length > 0) await this.#deliver();
    await this.#issue(false);
    for (let i = held.size; i > 0; i -= 1) this.#sample(false);
    this.#step();
  }

  /** Fails unless the learner's account has every token of the messages that it has received, each once. */
  assertBalance(): void {
    const { account, admission, delivered } = this.#session;
    const { trained, wasted } = account.totals;
    const { counts } = admission.table;
    const accounted = Object.values(wasted).reduce((sum, each) => sum + each, trained);
    const received = new Set([...this.#gone, ...this.#refused, ...delivered]);
    assert.equal(accounted + account.inFlight, tokensOfGroup * received.size, this.state);
    assert.equal(trained, tokensOfGroup * counts.trained, this.state);
    assert.equal(wasted['zero_variance'] ?? 0, tokensOfGroup * counts.skippedZeroVariance);
  }

  /** Number of steps that the current weights were trained for. */
  get steps(): number {
    return this.#session.admission.step;
  }

  get state(): string {
    const { table } = this.#session.admission;
    const entries = table
      .entries()
      .map(({ order, state, attempt }) => `${order}.${attempt} ${state}`);
    return JSON.stringify({
      entries,
      tickets: this.#tickets.held.size,
      scored: this.#scored.held.size,
    });
  }

  get #undelivered(): number[] {
    return [...this.#scored.held.keys()].filter((seq) => !this.#session.delivered.has(seq));
  }

  #restart(isResumed: boolean): LearnerSession {
    const version = isResumed ? this.#newest.version + 1 : 0;
    this.#session = startSession(this.#ledger, version, isResumed, this.#tickets.soFar);
    this.#publish();
    return this.#session;
  }

  #publish(): void {
    const { admission } = this.#session;
    const { version, table, rewinds } = admission;
    const smallest = smallestUsefulVersion(version, limits.maxStepsOffPolicy, rewinds);
    const { consumedBelow } = table;
    this.#newest = { version, smallestUsefulVersion: smallest, consumedBelow };
    admission.recordPublished(version);
  }

  /** @param crashes whether the learner crashes before it receives the first publish acknowledgement. */
  async #issue(crashes: boolean): Promise<void> {
    const { admission, tickets, receiver, changes, unacked } = this.#session;
    const over = new AbortController();
    const issuing = issueTickets<ArrivedGroup>(
      {
        admission,
        tickets,
        receiver,
        changes,
        pace: atOnce,
        publish: (ticket) => {
          this.#tickets.publish(`${ticket.ticketId}.${ticket.attempt}`, ticket);
          if (!crashes) return Promise.resolve();
          over.abort();
          return Promise.reject(new Error('no answer'));
        },
        onReplaced: ({ seq, scored }) => {
          unacked.replace(seq, messageIdOf(scored.group.ticket));
        },
      },
      over.signal,
    );
    await new Promise((resolve) => setImmediate(resolve));
    const wasCut = over.signal.aborted;
    over.abort();
    await issuing;
    if (wasCut) this.#crash();
  }

  /** @param isInterrupted whether the actor crashes before it has acknowledged the ticket. */
  #sample(isInterrupted: boolean): void {
    const all = [...this.#tickets.held];
    if (all.length === 0) return;
    const [seq, { value: ticket }] = all[this.#random.int(all.length)]!;
    using work = this.#cancel.watch(ticket, never);
    const { signal } = work;
    const isConsumed = signal.aborted;
    if (!isConsumed && this.#actorVersion < ticket.issuedAtVersion) return; // its version has not arrived yet
    if (!isInterrupted) this.#tickets.held.delete(seq);
    if (isConsumed) return;
    const version = this.#actorVersion;
    work.onDraw(version);
    if (this.#random.int(4) === 0) this.#receiveVersion(); // during sampling
    if (isUseless(signal)) {
      const why = signal.reason as Error;
      const cause = why instanceof GroupStale ? why.deathCause : ({ kind: 'other' } as const);
      this.#deaths.push({ ticket, reason: why.message, cause });
      return;
    }
    const rollouts = [0, 1].map(() => rollout(3, { versions: [[version, 3]] }));
    const group = rolloutGroup({ ticket, rollouts });
    const rewards = this.#random.int(5) < 2 ? ['0', '0'] : ['1', '0'];
    const { scores } = scoredGroup({ group });
    const judged = scores.map((score, i) => ({ ...score, exactReward: rewards[i]! }));
    this.#scored.publish(
      `${ticket.ticketId}-${ticket.attempt}`,
      scoredGroup({ group, scores: judged }),
    );
  }

  async #deliver(): Promise<void> {
    const seqs = this.#undelivered;
    if (seqs.length === 0) return;
    const seq = seqs[this.#random.int(seqs.length)]!;
    const { value } = this.#scored.held.get(seq)!;
    this.#session.delivered.add(seq);
    const lease = { seq, working: () => undefined, ack: () => this.#remove(seq) };
    await this.#session.receiver.receive({
      ...lease,
      lease,
      value,
      subject: 'scored',
      deliveryCount: 1,
      nak: () => undefined,
      dead: (reason) => {
        this.#deaths.push({ ticket: value.group.ticket, reason, cause: { kind: 'other' } });
        this.#refused.add(seq);
        return this.#remove(seq);
      },
    });
  }

  #remove(seq: number): Promise<void> {
    this.#scored.held.delete(seq);
    return Promise.resolve();
  }

  #receiveDeath(): void {
    const death = this.#deaths[this.#session.deathsHeard];
    if (death === undefined) return;
    this.#session.deathsHeard += 1;
    const { ticket, ...why } = death;
    this.#session.receiver.recordDeath(orderOf(ticket.ticketId)!, ticket.attempt, {
      stage: 'actor',
      ...why,
    });
  }

  #receiveVersion(): void {
    this.#actorVersion = this.#newest.version;
    this.#cancel.published(this.#newest);
  }

  #step(): void {
    const { admission, account } = this.#session;
    for (const { group } of admission.refuse()) account.waste(group.seq, 'stale');
    const minibatch = admission.cut();
    if (minibatch === undefined) return;
    admission.confirmStep();
    for (const { seq } of minibatch.groups) account.train(seq);
    this.#publish();
  }

  /** @param isCut whether the learner crashes before all covered messages are acknowledged. */
  async #checkpoint(isCut: boolean): Promise<void> {
    const { admission, unacked, account } = this.#session;
    const { table, step, version } = admission;
    const covered = unacked.covered((order) => table.isConsumed(order));
    const { settle, ...usage } = account.capture(covered.map(({ lease }) => lease.seq));
    this.#ledger = { step, version, rewinds: admission.rewindsInReach, table: table.state, usage };
    settle();
    for (const seq of [...usage.counted, ...this.#refused]) this.#gone.add(seq);
    this.#refused.clear();
    const acknowledged = isCut ? covered.slice(0, this.#random.int(covered.length + 1)) : covered;
    await unacked.settle(acknowledged);
    if (isCut) this.#crash();
  }

  #crash(): void {
    this.#refused.clear();
    this.#restart(true);
  }

  /** An operator or a faulty network repeats a message under another id. */
  #repeat(): void {
    const all = [...this.#scored.held];
    const some = all[this.#random.int(Math.max(1, all.length))];
    if (some !== undefined) this.#scored.publish(`again-${some[0]}-${all.length}`, some[1].value);
  }
}

/** A function, since the compiler assumes that a signal does not change between two reads. */
function isUseless(signal: AbortSignal): boolean {
  return signal.aborted;
}

const tokensOfGroup = 6; // two rollouts of three tokens
const rare = ['crash', 'restart', 'restart', 'repeat'] as const;
const usual = [
  ...(['issue', 'issue', 'sample', 'sample', 'sample', 'deliver', 'deliver', 'deliver'] as const),
  ...(['death', 'version', 'step', 'step', 'checkpoint'] as const),
];

/** Fails unless training continues from the current state of the model. */
export async function assertTrainingContinues(model: CrashModel, what: string): Promise<void> {
  const goal = model.steps + 3;
  for (let i = 0; i < 60 && model.steps < goal; i += 1) await model.settle();
  assert(model.steps >= goal, `${what} is stuck: ${model.state}`);
}
