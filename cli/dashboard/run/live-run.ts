import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../../shared/broker/broker.js';
import { errorText } from '../../../shared/base/errors.js';
import { lazily } from '../../../shared/base/remembered.js';
import type { RunConfigStore } from '../../../shared/run/run-config-store.js';
import type { Logger } from '../../../shared/service/telemetry/logger.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import { ActorLeaseClock, hasLearner, LeaseClock } from '../../existing-run/leases.js';
import { flowOf, flowWindowMs, type Snapshot } from './flow.js';
import { EventHistory } from './history.js';
import type { RunView } from './run-view.js';
import { sampledGroup, type Decode, type FindDecode, type SampledGroup } from './sampled-group.js';

export interface LiveRunOptions {
  readonly broker: Broker;
  readonly configs: Pick<RunConfigStore, 'get'>;
  readonly findDecode: FindDecode;
  readonly log: Logger;
}

/** The shown rollouts change slowly, so that they can be read. */
const samplesEveryMs = 5_000;
const samplesAnywayMs = 30_000;
const shownGroups = 3;

/** How long `now` waits for the server before it returns the last known state. */
const pollTimeoutMs = 3_000;

/**
 * A run as its NATS server shows it, read-only. Events are followed as they arrive; everything else is read
 * on demand, so that a closed page costs nothing.
 */
export class LiveRun {
  readonly #options: LiveRunOptions;
  readonly #history = new EventHistory();
  readonly #leases = new LeaseClock();
  readonly #actorLeases = new ActorLeaseClock();
  #snapshots: Snapshot[] = [];
  #polling: Promise<void> | undefined;
  #config: RunConfig | undefined;
  #decode: (() => Promise<Decode>) | undefined;
  #samples: SampledGroup[] = [];
  #sampleSeq = 0;
  #sampledAt = -Infinity;
  #hasEnded = false;

  constructor(options: LiveRunOptions) {
    this.#options = options;
  }

  /** Follows the run's events until the signal aborts. */
  async follow(signal: AbortSignal): Promise<void> {
    for await (const event of this.#options.broker.events.read(signal)) {
      this.#history.take(event);
      // Keeps some samples even if no page was ever open.
      const isDue = Date.now() - this.#sampledAt >= samplesAnywayMs;
      if (event.kind === 'step' && isDue) await this.#pollOnce();
    }
  }

  /** The newest rollouts that were seen, the newest first. */
  get samples(): readonly SampledGroup[] {
    return this.#samples;
  }

  /** Reads the past events, for a caller that does not follow. */
  async catchUp(signal: AbortSignal): Promise<void> {
    for await (const event of this.#options.broker.events.past(signal)) this.#history.take(event);
  }

  /** Marks the run as over; it is not polled from now on. */
  end(): void {
    this.#hasEnded = true;
  }

  /** The run as it is now; never fails, and does not wait for a server that is away. */
  async now(): Promise<RunView> {
    if (this.#hasEnded) return this.#state();
    const timer = new AbortController();
    const timeout = sleep(pollTimeoutMs, undefined, { signal: timer.signal }).catch(
      () => undefined,
    );
    await Promise.race([this.#pollOnce(), timeout]);
    timer.abort();
    return this.#state();
  }

  #state(): RunView {
    const { broker } = this.#options;
    const newest = this.#snapshots.at(-1);
    const isSilent = !broker.isConnected || newest === undefined;
    // A learner that was killed keeps its lease; one that released it before its first step has refused to resume.
    const isRefused = !isSilent && newest.leader === undefined;
    const { steps, evals, quarantined, resumed } = this.#history;
    const summary = this.#history.summary ?? (isRefused ? resumed : undefined);
    const isOver = this.#hasEnded || summary !== undefined;
    return {
      run: broker.run,
      at: Date.now(),
      phase: isOver ? 'over' : isSilent ? 'silent' : isLed(newest) ? 'live' : 'stopped',
      config: this.#config,
      history: { steps, evals, quarantined, summary },
      flow:
        isOver || newest === undefined ? undefined : flowOf(this.#snapshots, steps.at(-1)?.metrics),
      samples: this.#samples,
    };
  }

  /** Concurrent callers share one poll. */
  #pollOnce(): Promise<void> {
    this.#polling ??= this.#poll().finally(() => (this.#polling = undefined));
    return this.#polling;
  }

  async #poll(): Promise<void> {
    const { broker, configs, log } = this.#options;
    try {
      this.#config ??= await configs.get();
      const isSetUp = this.#config !== undefined;
      const [backlog, leases, manifest, leader] = await Promise.all([
        broker.backlog(),
        isSetUp ? broker.actors.list() : [],
        isSetUp ? broker.policy.current() : undefined,
        isSetUp ? broker.ledger.leader() : undefined,
      ]);
      const at = Date.now();
      this.#snapshots = this.#snapshots.filter((snapshot) => at - snapshot.at <= flowWindowMs);
      this.#snapshots.push({
        ...{ at, backlog, leases, manifest },
        leasesSeen: this.#actorLeases.seen(leases, at),
        leader: this.#leases.seen(leader, at),
      });
      if (at - this.#sampledAt >= samplesEveryMs) await this.#sample(at);
    } catch (caught) {
      log.warn({ reason: errorText(caught) }, 'run poll failed');
    }
  }

  async #sample(at: number): Promise<void> {
    if (this.#config === undefined) return;
    const newest = await this.#options.broker.newestScored(this.#sampleSeq);
    if (newest === undefined) return;
    this.#sampledAt = at;
    this.#sampleSeq = newest.seq;
    const config = this.#config;
    this.#decode ??= lazily(async () => (await this.#options.findDecode(config)) ?? idsOf);
    const group = sampledGroup(newest.group, await this.#decode());
    this.#samples = [group, ...this.#samples].slice(0, shownGroups);
  }
}

/** Whether a learner leads the run; before the first version is published, one is still starting. */
function isLed({ at, leader, manifest }: Snapshot): boolean {
  return manifest === undefined || hasLearner(leader, at);
}

/** Shows tokens as numbers, if the model is not on this machine. */
const idsOf: Decode = (tokens) => Array.from(tokens, (token) => `⟨${token}⟩`).join('');
