import { Counter, Gauge, Histogram } from 'prom-client';
import { createRandom } from '../../shared/random.js';
import { logprobGap, outsiders, type AuditLimits } from '../../shared/rl/logprob-audit.js';
import type { Logger } from '../../shared/telemetry/logger.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import type { MinibatchResult } from './minibatch-pass.js';
import type { TrainedGroup } from './step-report.js';

const groupsAudited = new Counter({
  name: 'rl_groups_audited_total',
  help: 'Groups whose logprobs were compared with those of the policy that sampled them.',
});
const auditGap = new Histogram({
  name: 'rl_audit_gap_nats',
  help: 'Mean difference between the logprobs that an actor claims and our own, a group each, nats a token.',
  buckets: [1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1],
});
const actorsQuarantined = new Gauge({
  name: 'rl_actors_quarantined',
  help: "Actors whose groups are refused because their logprobs left the fleet's band.",
});

export type QuarantineEvent = Extract<RunEvent, { kind: 'quarantine' }>;

export interface ActorAuditOptions {
  readonly share: number; // of the groups that can be audited
  readonly seed: number;
  readonly limits: AuditLimits;
  readonly tell: (event: QuarantineEvent) => Promise<void>;
  readonly log: Logger;
}

/**
 * Compares what actors say of their tokens with what the policy says of them, and quarantines those
 * that leave the fleet's band: by a wrong temperature, a wrong adapter or tampering. It costs nothing,
 * since training computes the logprobs anyway; a group is at staleness 0 when the weights that train on
 * it are those that sampled it, and then both should be the same.
 */
export class ActorAudit {
  readonly #options: ActorAuditOptions;
  readonly #gaps = new Map<string, number[]>();
  readonly #quarantined = new Set<string>();

  constructor(options: ActorAuditOptions) {
    this.#options = options;
  }

  /** Of earlier lives of the run. */
  remember(quarantined: readonly string[]): void {
    for (const actor of quarantined) this.#quarantined.add(actor);
    actorsQuarantined.set(this.#quarantined.size);
  }

  isQuarantined(actor: string): boolean {
    return this.#quarantined.has(actor);
  }

  /** For the manifest, by which the actors come to know. */
  get quarantined(): string[] {
    return [...this.#quarantined].sort();
  }

  /** By the names of `metrics.jsonl`. */
  get metrics(): Readonly<Record<string, number>> {
    return { 'actors/quarantined': this.#quarantined.size };
  }

  /**
   * Looks at the groups of a step.
   *
   * @param version that trained on them, hence the one that sampled those at staleness 0.
   * @param trained and `results` in the same order.
   * @returns once the run's history tells of whoever was quarantined because of them.
   */
  async observe(
    version: number,
    trained: readonly TrainedGroup[],
    results: readonly Pick<MinibatchResult, 'rollouts'>[],
  ): Promise<void> {
    const { limits } = this.#options;
    const rollouts = results.flatMap((result) => result.rollouts);
    let end = 0;
    for (const { group, staleness, substep } of trained) {
      const { actor, ticket, rollouts: own } = group.scored.group;
      const start = end;
      end += own.length;
      // A later substep trains with weights that nobody has sampled with.
      if (staleness !== 0 || substep !== 0 || !this.#isChosen(ticket.ticketId)) continue;
      const gap = logprobGap(rollouts.slice(start, end));
      if (!Number.isFinite(gap)) continue; // claims are finite, so it is our own number that is broken
      groupsAudited.inc();
      auditGap.observe(gap);
      this.#gaps.set(actor, [...(this.#gaps.get(actor) ?? []), gap].slice(-limits.window));
    }
    for (const { actor, gap, bound, groups } of outsiders(this.#gaps, limits)) {
      this.#gaps.delete(actor); // what it says is no measure for the others any more
      if (this.#quarantined.has(actor)) continue;
      this.remember([actor]);
      this.#options.log.error({ actor, gap, bound, groups }, 'an actor is quarantined');
      const event = { kind: 'quarantine', actor, gap, bound, groups, version } as const;
      await this.#options.tell({ v: 1, at: Date.now(), ...event });
    }
  }

  /** The same for every life of the run, and not to be foreseen without its seed. */
  #isChosen(ticketId: string): boolean {
    const { share, seed } = this.#options;
    return share === 1 || createRandom(`${seed} audit ${ticketId}`).next() < share;
  }
}
