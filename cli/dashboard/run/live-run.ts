import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../../shared/broker/broker.js';
import { errorText } from '../../../shared/base/errors.js';
import type { RunConfigStore } from '../../../shared/run/run-config-store.js';
import type { Logger } from '../../../shared/service/telemetry/logger.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import { hasLearner } from '../../existing-run/run-state.js';
import { flowOf, flowWindowMs, type Look } from './flow.js';
import { EventHistory } from './history.js';
import type { RunView } from './run-view.js';
import { sampledGroup, type Decode, type FindDecode, type SampledGroup } from './sampled-group.js';

export interface LiveRunOptions {
  readonly broker: Broker;
  readonly configs: Pick<RunConfigStore, 'get'>;
  readonly findDecode: FindDecode;
  readonly log: Logger;
}

/** Rollouts change no faster than one can look at them. */
const samplesEveryMs = 5_000;
const samplesAnywayMs = 30_000;
const shownGroups = 3;

/** The server may be away: then what is known already has to do. */
const patienceMs = 3_000;

/**
 * A run as its NATS tells of it. It only looks: at the events as they come, at everything else when
 * somebody asks, so that a page which nobody has open costs nothing.
 */
export class LiveRun {
  readonly #options: LiveRunOptions;
  readonly #history = new EventHistory();
  #looks: Look[] = [];
  #looking: Promise<void> | undefined;
  #config: RunConfig | undefined;
  #decode: Promise<Decode> | undefined;
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
      // So that a run leaves some behind, also where nobody has looked.
      const isDue = Date.now() - this.#sampledAt >= samplesAnywayMs;
      if (event.kind === 'step' && isDue) await this.#lookOnce();
    }
  }

  /** The newest rollouts that were seen, the newest first. */
  get samples(): readonly SampledGroup[] {
    return this.#samples;
  }

  /** Takes the events so far, for who does not follow. */
  async catchUp(signal: AbortSignal): Promise<void> {
    for await (const event of this.#options.broker.events.past(signal)) this.#history.take(event);
  }

  /** Nobody works on it any more, and it is not looked at from now on. */
  end(): void {
    this.#hasEnded = true;
  }

  /** The run as it is now; never fails, and does not wait for a server that is away. */
  async now(): Promise<RunView> {
    if (this.#hasEnded) return this.#state();
    const timer = new AbortController();
    const patience = sleep(patienceMs, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([this.#lookOnce(), patience]);
    timer.abort();
    return this.#state();
  }

  #state(): RunView {
    const { broker } = this.#options;
    const isOver = this.#hasEnded || this.#history.summary !== undefined;
    const newest = this.#looks.at(-1);
    const lastStep = this.#history.steps.at(-1);
    const isSilent = !broker.isConnected || newest === undefined;
    return {
      run: broker.run,
      at: Date.now(),
      phase: isOver ? 'over' : isSilent ? 'silent' : isLed(newest) ? 'live' : 'stopped',
      config: this.#config,
      history: this.#history,
      flow: isOver || newest === undefined ? undefined : flowOf(this.#looks, lastStep?.metrics),
      samples: this.#samples,
    };
  }

  /** However many ask, one looks. */
  #lookOnce(): Promise<void> {
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  async #look(): Promise<void> {
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
      this.#looks = this.#looks.filter((look) => at - look.at <= flowWindowMs);
      this.#looks.push({ at, backlog, leases, manifest, leader });
      if (at - this.#sampledAt >= samplesEveryMs) await this.#sample(at);
    } catch (caught) {
      log.warn({ reason: errorText(caught) }, 'could not look at the run');
    }
  }

  async #sample(at: number): Promise<void> {
    if (this.#config === undefined) return;
    const newest = await this.#options.broker.newestScored(this.#sampleSeq);
    if (newest === undefined) return;
    this.#sampledAt = at;
    this.#sampleSeq = newest.seq;
    this.#decode ??= this.#options.findDecode(this.#config).then((decode) => decode ?? idsOf);
    const group = sampledGroup(newest.group, await this.#decode);
    this.#samples = [group, ...this.#samples].slice(0, shownGroups);
  }
}

/** Whether a learner leads the run; before the first version is out, one is about to. */
function isLed({ at, leader, manifest }: Look): boolean {
  return manifest === undefined || hasLearner(leader, at);
}

/** Tokens of a model that is not at hand: their numbers. */
const idsOf: Decode = (tokens) => Array.from(tokens, (token) => `⟨${token}⟩`).join('');
