import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { ActorAudit } from '../audit/actor-audit.js';
import { breakageReason, type BrokenPolicyWatch } from './broken-policy-watch.js';
import type { Divergence, DivergenceWatch } from './divergence-watch.js';
import type { NoSignalStreak, NoSignalWatch } from './no-signal-watch.js';
import type { StepEvent } from '../report/history.js';

/** Why a run was given up before its last step. */
export type RunEnding =
  | { readonly reason: 'diverged'; readonly divergence: Divergence }
  | { readonly reason: 'no_signal'; readonly noSignalStreak: NoSignalStreak };

/** The stop conditions: on the steps of a run, and on groups from which no step can be made. */
export interface Watches {
  readonly divergence: Pick<DivergenceWatch, 'judge' | 'judgeNoSignal'>;
  readonly noSignal: Pick<NoSignalWatch, 'signal' | 'streak'>;
  readonly brokenPolicy: Pick<BrokenPolicyWatch, 'signal' | 'breakage'>;
  /** Aborts when all live actors are quarantined. */
  readonly audit: Pick<ActorAudit, 'signal' | 'reason'>;
  readonly log: Logger;
}

/** Combines the stop conditions: decides whether a run is given up, and why. */
export class StopConditions {
  readonly #watches: Watches;
  readonly #byStep = new AbortController();
  #divergence: Omit<Divergence, 'checkpointStep'> | undefined;
  #noSignalStreak: NoSignalStreak | undefined;
  /** Aborts when the run is to end. */
  readonly signal: AbortSignal;

  constructor(watches: Watches) {
    this.#watches = watches;
    const { noSignal, brokenPolicy, audit } = watches;
    const signals = [this.#byStep, noSignal, brokenPolicy, audit].map(({ signal }) => signal);
    this.signal = AbortSignal.any(signals);
  }

  /** Whether training has diverged, so that steps still in progress do not count. */
  get hasDiverged(): boolean {
    return this.#divergence !== undefined;
  }

  /** @returns whether the step was healthy. */
  checkStep(event: StepEvent): boolean {
    const { divergence, log } = this.#watches;
    const verdict = divergence.judge(event);
    if (verdict.state === 'healthy') return true;
    const { step } = event;
    const { state, reason } = verdict;
    log.warn({ step, reason }, state === 'suspect' ? 'training may diverge' : 'training diverged');
    if (state === 'diverged') {
      this.#divergence = { step, reason };
      this.#byStep.abort();
    }
    return false;
  }

  /** Gives up because the weights of a step cannot be used, so no further step can be trained on them. */
  giveUp(step: number, reason: string): void {
    this.#watches.log.warn({ step, reason }, 'training diverged');
    this.#divergence ??= { step, reason };
    this.#byStep.abort();
  }

  /**
   * Called when training ended early without being stopped: checks whether a group-level condition caused it.
   *
   * @throws {UserError} if the policy is broken although nothing has been trained.
   */
  findGroupCause({ step, unconfirmedSteps }: { step: number; unconfirmedSteps: number }): void {
    const { divergence, noSignal, brokenPolicy, audit, log } = this.#watches;
    if (audit.reason !== undefined) {
      log.warn({ step, reason: audit.reason }, 'training diverged');
      this.#divergence ??= { step, reason: audit.reason, cause: 'actor' };
    }
    if (noSignal.signal.aborted) {
      this.#noSignalStreak = noSignal.streak;
      const reason = divergence.judgeNoSignal(this.#noSignalStreak);
      log.warn({ ...this.#noSignalStreak, reason }, 'groups have no variance');
      if (reason !== undefined) this.#divergence ??= { step, reason };
    }
    if (brokenPolicy.signal.aborted) {
      const reason = breakageReason(brokenPolicy.breakage, step + unconfirmedSteps > 0);
      log.warn({ step, reason }, 'training diverged');
      const { isContradicted } = brokenPolicy.breakage;
      this.#divergence ??= { step, reason, ...(isContradicted && { cause: 'actor' as const }) };
    }
  }

  /** @param checkpointStep of the checkpoint that stays. @returns undefined if the run is not given up. */
  ending(checkpointStep: number): RunEnding | undefined {
    if (this.#divergence !== undefined) {
      return { reason: 'diverged', divergence: { ...this.#divergence, checkpointStep } };
    }
    return this.#noSignalStreak && { reason: 'no_signal', noSignalStreak: this.#noSignalStreak };
  }
}
