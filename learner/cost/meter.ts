import { type ActorLease, WasteReason } from '../../shared/wire/actor-lease.js';
import type { MeterTotals, Usage } from '../../shared/wire/ledger.js';

type Roles = MeterTotals['seconds'];

const nothing: MeterTotals = {
  seconds: { sampler: 0, trainer: 0, reward: 0 },
  evaluated: 0,
  evaluatedPrompts: 0,
  abandoned: {},
  undone: 0,
};

/**
 * Measures what a run uses that no crash gives back: the time for which machines are held, tokens sampled for
 * evaluations, tokens that actors abandoned, and steps that a crash undid. All of it only rises, in one process
 * as over restarts. It is measured while a learner leads the run.
 */
export class Meter {
  readonly #now: () => number;
  #totals = nothing;
  #measuredAt: number;
  readonly #leases = new Map<string, ActorLease>(); // by actor, the newest

  /** @param now seconds of a clock that only rises. */
  constructor(now: () => number) {
    this.#now = now;
    this.#measuredAt = now();
  }

  get totals(): MeterTotals {
    return this.#totals;
  }

  /**
   * Continues the totals of earlier sessions.
   *
   * @param usage of the restored checkpoint.
   * @param newest the metrics of the newest step in the run's events, which the checkpoint may not contain: those of
   *   its tokens that the checkpoint lacks were trained in steps that a crash undid. The metrics do not have the tokens
   *   of trained prompts apart, so `undone` lacks these; those of examples include their prompts.
   */
  resume(usage: Usage | undefined, newest: Readonly<Record<string, number>> = {}): void {
    if (usage === undefined) return;
    const of = (key: string): number => newest[key] ?? 0;
    const { trained, examples = 0 } = usage.tokens;
    const lost =
      Math.max(0, of('run_tokens/trained') - trained) +
      Math.max(0, of('run_tokens/examples') - examples);
    const [ours, theirs] = [this.#totals, usage.meter];
    const seconds = (role: keyof Roles) =>
      Math.max(ours.seconds[role], theirs.seconds[role], of(`held_seconds/${role}`));
    const seen = Object.fromEntries(
      WasteReason.options.map((reason) => [reason, of(`run_tokens_wasted/cancelled_${reason}`)]),
    );
    const reasons = Object.keys({ ...ours.abandoned, ...theirs.abandoned, ...seen });
    this.#totals = {
      seconds: {
        sampler: seconds('sampler'),
        trainer: seconds('trainer'),
        reward: seconds('reward'),
      },
      evaluated: Math.max(ours.evaluated, theirs.evaluated, of('run_tokens/evaluated')),
      evaluatedPrompts: Math.max(ours.evaluatedPrompts, theirs.evaluatedPrompts),
      abandoned: Object.fromEntries(
        reasons
          .map((reason): [string, number] => {
            const totals = [ours.abandoned, theirs.abandoned, seen];
            return [reason, Math.max(...totals.map((total) => total[reason] ?? 0))];
          })
          .filter(([, tokens]) => tokens > 0),
      ),
      // What is lost is added to the count of the newest step: the checkpoint's may include it already.
      undone: Math.max(
        ours.undone,
        theirs.undone,
        (newest['run_tokens/undone'] ?? theirs.undone) + lost,
      ),
    };
  }

  /**
   * Adds the time since the last call. The trainer is held all the time, and so are the reward services; each actor
   * for as long as it is live.
   *
   * @param leases of the live actors.
   */
  measure(leases: readonly ActorLease[]): void {
    const now = this.#now();
    const passed = now - this.#measuredAt;
    this.#measuredAt = now;
    const { seconds } = this.#totals;
    this.#totals = {
      ...this.#totals,
      seconds: {
        sampler: seconds.sampler + passed * leases.length,
        trainer: seconds.trainer + passed,
        reward: seconds.reward + passed,
      },
    };
    for (const lease of leases) this.#countAbandoned(lease);
  }

  /** Counts an answer to an evaluation's ticket. */
  evaluated(tokens: number, prompt: number): void {
    const { evaluated, evaluatedPrompts } = this.#totals;
    this.#totals = {
      ...this.#totals,
      evaluated: evaluated + tokens,
      evaluatedPrompts: evaluatedPrompts + prompt,
    };
  }

  /**
   * Adds what an actor has abandoned since its lease before. The first lease that is seen is where counting begins,
   * since an earlier learner may have counted what it names.
   */
  #countAbandoned(lease: ActorLease): void {
    const before = this.#leases.get(lease.actor);
    this.#leases.set(lease.actor, lease);
    if (before === undefined || lease.abandoned === undefined) return;
    const isRestarted = lease.groups < before.groups;
    const abandoned = { ...this.#totals.abandoned };
    for (const reason of WasteReason.options) {
      const tokens = lease.abandoned[reason];
      if (tokens === undefined) continue;
      const known = isRestarted ? 0 : (before.abandoned?.[reason] ?? 0);
      const total = (abandoned[reason] ?? 0) + Math.max(0, tokens - known);
      // A checkpoint holds exact integers only, and an actor may claim anything.
      abandoned[reason] = Math.min(total, Number.MAX_SAFE_INTEGER);
    }
    this.#totals = { ...this.#totals, abandoned };
  }
}
