import { Admission, type Minibatch, type TicketOffer } from '../../learner/groups/admission.js';
import { mostUnconfirmedSteps, ticketsWanted } from '../../shared/rl/capacity.js';
import { smallestUsefulVersion } from '../../shared/rl/staleness.js';
import { EventQueue } from './event-queue.js';
import { Measures, type Outcome } from './measures.js';
import type { Policy, Setting } from './policies.js';
import { SlotPool, type SampledGroup } from './slot-pool.js';
import type { Trace } from './trace.js';

/**
 * Runs learner, actors and backend in simulated time until `setting.steps` steps are trained. The learner decides with
 * the real `Admission`. Actors take tickets in order, each answer occupies one slot of the sampler, and the backend
 * trains one minibatch after another.
 */
export function simulate(setting: Setting, policy: Policy, trace: Trace): Outcome {
  return new Loop(setting, policy, trace).run();
}

class Loop {
  readonly #setting: Setting;
  readonly #policy: Policy;
  readonly #trace: Trace;
  readonly #time = new EventQueue();
  readonly #admission: Admission<SampledGroup>;
  readonly #pool: SlotPool;
  readonly #measures: Measures;
  readonly #tickets: TicketOffer[] = []; // issued, and with no actor yet
  readonly #publishedAt: number[] = [0]; // seconds, by version
  #backendFreeAt = 0; // seconds
  #confirmedAt = 0; // seconds
  #idleSeconds = 0; // of the backend since then

  constructor(setting: Setting, policy: Policy, trace: Trace) {
    this.#setting = setting;
    this.#policy = policy;
    this.#trace = trace;
    const { window, bound, isFrugal = false } = policy;
    this.#admission = new Admission(
      {
        groupsPerBatch: setting.groupsPerBatch,
        numSubsteps: 1,
        numMinibatches: setting.numMinibatches,
        maxStepsOffPolicy: bound,
        windowPolicy: window,
        maxSteps: setting.steps,
        isFrugal,
      },
      { step: 0, version: 0 },
    );
    this.#pool = new SlotPool({
      slots: setting.slots,
      answersNeeded: setting.groupSize,
      time: this.#time,
      newestVersion: () => this.#admission.publishedVersion,
      onSampled: (group) => {
        this.#time.plan(this.#time.now + setting.scoreSeconds, () => {
          this.#arrive(group);
        });
      },
    });
    this.#measures = new Measures(policy, this.#publishedAt);
  }

  /** @throws {Error} if nothing can happen before the run has its steps: the policy has a deadlock. */
  run(): Outcome {
    const { steps, stepSeconds } = this.#setting;
    this.#act();
    while (this.#admission.step < steps) {
      if (!this.#time.step()) throw new Error(`nothing can happen after ${this.#time.now} s`);
    }
    return this.#measures.outcome(this.#time.now, { steps, stepSeconds });
  }

  /** Does everything that can be done at this moment. */
  #act(): void {
    this.#train();
    while (this.#issue() || this.#start());
  }

  #issue(): boolean {
    const { ticketsAhead: ahead = Infinity } = this.#policy;
    const demand = { undelivered: this.#tickets.length, requests: this.#freeActors };
    if (ticketsWanted(demand, ahead) === 0) return false;
    const offer = this.#admission.offer();
    if (offer === undefined) return false;
    this.#admission.issue();
    this.#tickets.push(offer);
    return true;
  }

  /** Groups that actors could begin now. */
  get #freeActors(): number {
    const { groupsInFlight = Infinity } = this.#policy;
    return groupsInFlight - this.#pool.groupsInFlight;
  }

  #start(): boolean {
    const ticket = this.#freeActors > 0 ? this.#tickets.shift() : undefined;
    if (ticket === undefined) return false;
    const { order, attempt } = ticket;
    const { problems, spareAnswers = 0 } = this.#policy;
    const answers = this.#setting.groupSize + spareAnswers;
    const seconds = this.#trace.answersTo(problems?.[order] ?? order, attempt, answers);
    this.#pool.start({ order, attempt, seconds });
    return true;
  }

  #arrive(group: SampledGroup): void {
    const { order, attempt, version } = group;
    const { isAdopting = false } = this.#policy;
    const sampledBy = isAdopting ? [version, this.#admission.publishedVersion] : [version];
    this.#admission.arrive(order, group, sampledBy, attempt);
    this.#act();
  }

  /** Refuses groups that are too old, and sends minibatches to the backend, at most two steps ahead as in the learner. */
  #train(): void {
    for (const { group } of this.#admission.refuse()) {
      this.#measures.drop(group);
    }
    for (;;) {
      const { version, unconfirmedSteps } = this.#admission;
      const minibatch = unconfirmedSteps < mostUnconfirmedSteps ? this.#admission.cut() : undefined;
      if (minibatch === undefined) return;
      this.#send(minibatch, version);
    }
  }

  #send({ orders, groups, isLastOfStep }: Minibatch<SampledGroup>, version: number): void {
    const { stepSeconds, numMinibatches } = this.#setting;
    const startsAt = Math.max(this.#time.now, this.#backendFreeAt);
    this.#idleSeconds += startsAt - this.#backendFreeAt;
    this.#backendFreeAt = startsAt + stepSeconds / numMinibatches;
    this.#measures.train(groups, version);
    this.#time.plan(this.#backendFreeAt, () => {
      this.#admission.limiter.recordComputed(orders);
      if (isLastOfStep) this.#confirm(version);
      this.#act();
    });
  }

  #confirm(version: number): void {
    const { publishSeconds } = this.#setting;
    const { now } = this.#time;
    this.#admission.confirmStep();
    const seconds = now - this.#confirmedAt;
    this.#admission.limiter.adaptLimit({ seconds, idleSeconds: this.#idleSeconds });
    this.#idleSeconds = 0;
    this.#confirmedAt = now;
    this.#time.plan(now + publishSeconds, () => {
      this.#publish(version + 1);
    });
  }

  #publish(version: number): void {
    this.#publishedAt[version] = this.#time.now;
    this.#admission.recordPublished(version);
    if (this.#policy.window !== 'tokens') this.#cancelUseless(version);
    this.#act();
  }

  /** The actors give up groups that can no longer be trained on. */
  #cancelUseless(version: number): void {
    const smallestUseful = smallestUsefulVersion(version, this.#policy.bound, []);
    for (const group of this.#pool.cancelBelow(smallestUseful)) {
      this.#admission.table.retryOrEnd(group.order, group.attempt);
      this.#measures.drop(group);
    }
  }
}
