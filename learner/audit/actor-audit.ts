import { Counter, Histogram } from 'prom-client';
import { createRandom } from '../../shared/base/random.js';
import { median } from '../../shared/base/statistics.js';
import { evidenceAgainstPolicy } from '../../shared/rl/claim-evidence.js';
import { klOfMajority, type ActorKl } from '../../shared/rl/divergence.js';
import { rankAtEqualAge, type AgedGroup } from '../../shared/rl/fleet-rank.js';
import { logprobGap, outsiders, type AuditLimits } from '../../shared/rl/logprob-audit.js';
import { offPolicyStats, unbounded } from '../../shared/rl/off-policy.js';
import { allowedPairs, type StalenessBound } from '../../shared/rl/staleness-bound.js';
import { staleness as stalenessOf, type Rewind } from '../../shared/rl/staleness.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { StatTable } from '../report/stat-table.js';
import type { MinibatchResult } from '../step/minibatch-pass.js';
import type { TrainedGroup } from '../step/collected-step.js';

const groupsAudited = new Counter({
  name: 'rl_groups_audited_total',
  help: 'Groups whose logprobs were compared with those of the policy that sampled them.',
});
const auditGap = new Histogram({
  name: 'rl_audit_gap_nats',
  help: 'Mean difference between the logprobs that an actor claims and those of the learner, one value per group, in nats per token.',
  buckets: [1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1],
});
const auditEvidence = new Histogram({
  name: 'rl_audit_evidence_nats',
  help: 'Evidence against the logprobs that an actor claims, one value x per trained group, in nats; an honest group exceeds x with chance e^-x at most.',
  buckets: [-10, -1, 0, 1, 3, 10, 21, 50, 200],
});
const quarantineStats = new StatTable<number>([
  {
    jsonl: 'actors/quarantined',
    prometheus: 'rl_actors_quarantined',
    help: 'Actors whose groups are refused because an audit convicted them.',
    of: (actors) => actors,
  },
]);

export type QuarantineEvent = Extract<RunEvent, { kind: 'quarantine' }>;
/** `gap` is what `bound` limits: a gap or an amount of evidence in nats, a ratio, or a number of groups, by `why`. */
type Finding = Pick<QuarantineEvent, 'actor' | 'gap' | 'bound' | 'groups' | 'why'>;

interface ActorAuditOptions {
  readonly share: number; // of the groups that can be audited
  readonly seed: number;
  readonly limits: AuditLimits;
  readonly emit: (event: QuarantineEvent) => Promise<void>;
  readonly now: () => number; // ms
  readonly log: Logger;
}

/** How long a run continues while all of its live actors are quarantined. */
const graceMs = 60_000;

/** Sequential evidence against one actor. */
interface Evidence {
  readonly nats: number; // summed since it was last at 0
  readonly groups: number; // in that sum
}

/**
 * Compares the logprobs that actors claim with those of the policy, and quarantines an actor whose claims
 * cannot be honest: a wrong temperature, a wrong adapter, a defect, tampering. It costs no pass, since
 * training computes the logprobs anyway. There are five findings, each with a bound on its false alarms
 * (docs/metrics.md, the audit of logprobs):
 *
 * - `gap`: at staleness 0 the weights in training are those that sampled, so the logprobs should agree;
 * - `likelihood`: at any staleness, the tokens fit the policy in training better than the claims;
 * - `fleet`: at any staleness, the actor's groups deviate more than other actors' groups of equal age;
 * - `impossible`: groups were refused before training, since no policy can give such logprobs;
 * - `version`: at any staleness, groups are not what the versions that they name give (`VersionAudit`, which costs passes).
 *
 * `SelectionAudit` adds those about answers that were selected.
 *
 * A run whose live actors are all quarantined ends.
 */
export class ActorAudit {
  readonly #options: ActorAuditOptions;
  readonly #gaps = new Map<string, number[]>(); // at staleness 0
  readonly #likelihood = new Map<string, Evidence>();
  readonly #fleet = new Map<string, Evidence>();
  readonly #ratios = new Map<string, number[]>();
  readonly #strikes = new Map<string, number>();
  readonly #quarantined = new Map<string, string>(); // why, by actor
  readonly #over = new AbortController();
  #allQuarantinedSince: number | undefined; // ms
  #reason: string | undefined;

  constructor(options: ActorAuditOptions) {
    this.#options = options;
  }

  /** Aborts when all live actors are quarantined. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Why the run ends; undefined while an honest actor may be left. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Restores the actors that earlier sessions of the run have quarantined. */
  remember(findings: readonly Pick<QuarantineEvent, 'actor' | 'why'>[]): void {
    for (const { actor, why = 'gap' } of findings) this.#quarantined.set(actor, why);
    quarantineStats.record(this.#quarantined.size);
  }

  isQuarantined(actor: string): boolean {
    return this.#quarantined.has(actor);
  }

  /** The quarantined actors, sorted, for the manifest that the actors read. */
  get quarantined(): string[] {
    return [...this.#quarantined.keys()].sort();
  }

  /** The metrics, by their names in `metrics.jsonl`. */
  get metrics(): Readonly<Record<string, number>> {
    return quarantineStats.record(this.#quarantined.size);
  }

  /**
   * Audits the groups of a step.
   *
   * @param bound of the step; its version trained on them, hence it is the one that sampled those at staleness 0.
   * @param trained and `results` in the same order.
   * @returns the divergence of the step as most actors show it, by its name in `metrics.jsonl`, once the
   *   run's history has an event for each actor that was quarantined because of the step.
   */
  async observe(
    bound: StalenessBound,
    trained: readonly TrainedGroup[],
    results: readonly Pick<MinibatchResult, 'rollouts'>[],
  ): Promise<Record<string, number>> {
    const { version, rewinds } = bound;
    const pairs = results.flatMap((result) => result.rollouts);
    const aged: AgedGroup[] = [];
    let end = 0;
    for (const one of trained) {
      const { actor, ticket, rollouts: own } = one.group.scored.group;
      const start = end;
      end += own.length;
      const group = pairs.slice(start, end);
      if (this.#quarantined.has(actor) || !this.#isChosen(ticket.ticketId)) continue;
      const gap = logprobGap(group);
      if (!Number.isFinite(gap)) continue; // claims are finite, so our own logprob is broken
      this.#observeGap(actor, gap, one);
      const evidence = evidenceAgainstPolicy(group);
      auditEvidence.observe(evidence);
      add(this.#likelihood, actor, evidence, 1);
      aged.push({ actor, gaps: gapsByAge(one, group, version, rewinds) });
    }
    this.#compare(aged);
    for (const finding of this.#findings()) await this.convict(finding, version);
    const fresh = pairs.map((rollout) => allowedPairs(rollout, bound));
    return this.#divergence(trained, fresh);
  }

  /**
   * Counts a group that was refused before training because its claims are impossible.
   *
   * @returns once the run's history has an event, if this group reaches the limit.
   */
  async refused(actor: string, version: number): Promise<void> {
    const { maxRefused } = this.#options.limits;
    const groups = (this.#strikes.get(actor) ?? 0) + 1;
    this.#strikes.set(actor, groups);
    if (groups < maxRefused || this.#quarantined.has(actor)) return;
    await this.convict(
      { actor, gap: groups, bound: maxRefused, groups, why: 'impossible' },
      version,
    );
  }

  /** Only at staleness 0 and in the first substep: later substeps train with weights that sampled nothing. */
  #observeGap(actor: string, gap: number, { staleness, substep }: TrainedGroup): void {
    if (staleness !== 0 || substep !== 0) return;
    groupsAudited.inc();
    auditGap.observe(gap);
    this.#gaps.set(actor, this.#newest(this.#gaps.get(actor), [gap]));
  }

  #compare(aged: readonly AgedGroup[]): void {
    for (const [actor, { evidence, ratios }] of rankAtEqualAge(aged, this.#options.limits.noise)) {
      add(this.#fleet, actor, evidence, ratios.length);
      this.#ratios.set(actor, this.#newest(this.#ratios.get(actor), ratios));
    }
  }

  /** Several findings may name one actor; the first convicts it. */
  #findings(): Finding[] {
    const { limits } = this.#options;
    const { proof, minGroups, factor } = limits;
    const byGap = outsiders(this.#gaps, limits).map((found) => ({ ...found, why: 'gap' as const }));
    const byLikelihood = [...this.#likelihood].flatMap(([actor, { nats: gap, groups }]) =>
      gap < proof ? [] : [{ actor, gap, bound: proof, groups, why: 'likelihood' as const }],
    );
    const byFleet = [...this.#fleet].flatMap(([actor, { nats }]) => {
      const ratios = this.#ratios.get(actor) ?? [];
      const gap = ratios.length < minGroups ? 0 : median(ratios);
      if (nats < proof || gap <= factor) return [];
      return [{ actor, gap, bound: factor, groups: ratios.length, why: 'fleet' as const }];
    });
    return [...byGap, ...byLikelihood, ...byFleet];
  }

  /** Quarantines an actor, unless it is. Resolves once the run's history has an event. */
  async convict(finding: Finding, version: number): Promise<void> {
    const { log, emit } = this.#options;
    const { actor } = finding;
    if (this.#quarantined.has(actor)) return;
    this.#forget(actor); // other actors must not be compared with it
    this.remember([finding]);
    log.error(finding, 'actor quarantined');
    await emit({ v: 1, at: Date.now(), kind: 'quarantine', ...finding, version });
  }

  /**
   * Ends the run when all live actors have been quarantined for `graceMs`, which leaves a repaired actor
   * time to join under another name. To be called every few seconds.
   *
   * @param live the names of the actors that are alive.
   */
  checkLiveActors(live: readonly string[]): void {
    const areAllQuarantined =
      live.length > 0 && live.every((actor) => this.#quarantined.has(actor));
    if (!areAllQuarantined) {
      this.#allQuarantinedSince = undefined;
      return;
    }
    const now = this.#options.now();
    this.#allQuarantinedSince ??= now;
    if (now - this.#allQuarantinedSince < graceMs || this.#over.signal.aborted) return;
    const named = [...live].sort().map((actor) => `${actor} (${this.#quarantined.get(actor)})`);
    this.#reason = `every live actor is quarantined: ${named.join(', ')}`;
    this.#over.abort();
  }

  #forget(actor: string): void {
    const records = [this.#gaps, this.#likelihood, this.#fleet, this.#ratios, this.#strikes];
    for (const record of records) record.delete(actor);
  }

  /** The divergence of the step without quarantined actors and without a deviating minority. */
  #divergence(
    trained: readonly TrainedGroup[],
    pairs: MinibatchResult['rollouts'],
  ): Record<string, number> {
    const byActor = new Map<string, MinibatchResult['rollouts'][number][]>();
    let end = 0;
    for (const { group } of trained) {
      const { actor, rollouts } = group.scored.group;
      const own = pairs.slice(end, (end += rollouts.length));
      if (!this.#quarantined.has(actor))
        byActor.set(actor, [...(byActor.get(actor) ?? []), ...own]);
    }
    const actors = [...byActor].flatMap(([actor, own]): ActorKl[] => {
      const stats = offPolicyStats(own, unbounded);
      return stats === undefined ? [] : [{ actor, tokens: stats.tokens, kl: stats.klV2 }];
    });
    const { kl, without } = klOfMajority(actors);
    const all = actors.reduce((sum, { tokens, kl: own }) => sum + tokens * own, 0);
    const tokens = actors.reduce((sum, one) => sum + one.tokens, 0);
    if (without.length > 0 && all / tokens > 0.1 && all / tokens > 2 * kl) {
      const fields = { actors: without, kl: all / tokens, klOfOthers: kl };
      this.#options.log.warn(fields, 'step divergence caused by a minority of actors');
    }
    return { 'kl_sample_train_v2/fleet': kl };
  }

  #newest(before: readonly number[] | undefined, more: readonly number[]): number[] {
    return [...(before ?? []), ...more].slice(-this.#options.limits.window);
  }

  /** Chooses the same tickets in every session of the run; unpredictable without the run's seed. */
  #isChosen(ticketId: string): boolean {
    const { share, seed } = this.#options;
    return share === 1 || createRandom(`${seed} audit ${ticketId}`).next() < share;
  }
}

/** Adds evidence; a negative sum restarts at 0, so that an actor cannot offset later lies with past honesty. */
function add(record: Map<string, Evidence>, actor: string, nats: number, groups: number): void {
  const before = record.get(actor);
  const isPositive = before !== undefined && before.nats > 0;
  record.set(actor, {
    nats: nats + (isPositive ? before.nats : 0),
    groups: groups + (isPositive ? before.groups : 0),
  });
}

/** The gaps of a group's tokens, summed by age and by the substep that trained on them. */
function gapsByAge(
  { group, substep }: TrainedGroup,
  pairs: MinibatchResult['rollouts'],
  version: number,
  rewinds: readonly Rewind[],
): AgedGroup['gaps'] {
  const gaps = new Map<string, { tokens: number; sum: number }>();
  group.scored.group.rollouts.forEach(({ versions }, i) => {
    const { behavior, current } = pairs[i]!;
    let t = 0;
    for (const [sampledBy, count] of versions) {
      const age = `${substep}/${stalenessOf(version, [sampledBy], rewinds)}`;
      const found = gaps.get(age) ?? { tokens: 0, sum: 0 };
      for (const end = t + count; t < end; t++) found.sum += Math.abs(behavior[t]! - current[t]!);
      gaps.set(age, { tokens: found.tokens + count, sum: found.sum });
    }
  });
  return gaps;
}
