import { Counter, Gauge } from 'prom-client';
import { coarser, type Arithmetic } from '../../shared/base/arithmetic.js';
import { errorText } from '../../shared/base/errors.js';
import { createRandom, tokenDraws } from '../../shared/base/random.js';
import { bandOf } from '../../shared/rl/canary.js';
import {
  addEvidence,
  distanceFromDraw,
  selectionEvidence,
  solveBets,
  solveRateEvidence,
  tilts,
  type KnownPosition,
} from '../../shared/rl/selection-evidence.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TopTokens } from '../../shared/tinker/types.js';
import { drawsByTicket } from '../../shared/wire/canary.js';
import { type RolloutGroup, versionsIn } from '../../shared/wire/rollout-group.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { ActorAudit } from './actor-audit.js';

const replays = new Counter({
  name: 'rl_groups_replayed_total',
  help:
    "Groups whose tokens were chosen again from their ticket's random numbers, by outcome: agrees, differs, other_draws (the sampler " +
    'does not say that it draws by them), or unavailable (the backend did not show what its versions find most probable, or computes otherwise than in fp32).',
  labelNames: ['outcome'],
});
const largestEvidence = new Gauge({
  name: 'rl_selection_evidence_nats',
  help: 'Most evidence so far that an actor selects its answers, in nats, by kind of test: selection (how probable its answers are) or solve_rate.',
  labelNames: ['kind'],
});
const suspected = new Gauge({
  name: 'rl_actors_suspected',
  help: 'Actors that this learner has reported for selecting their answers, and not quarantined.',
});

type SuspicionEvent = Extract<RunEvent, { kind: 'suspicion' }>;

/** Logprobs of a text's tokens by one version, and its most probable tokens in the place of each. */
export interface ScoredText {
  readonly logprobs: Float32Array; // [P + T]
  readonly top: TopTokens; // of P + T positions
}

/** @returns undefined if the version cannot be used. */
type ScoreText = (version: number, text: Int32Array) => Promise<ScoredText | undefined>;

export interface SelectionAuditOptions {
  readonly share: number; // of the groups
  readonly seed: number;
  readonly vocabSize: number;
  readonly trainer: Arithmetic;
  readonly isAdapterRounded: boolean; // whether actors may sample with the version's adapter in bfloat16
  readonly maxStepsOffPolicy: number;
  /** Whether a group of a sampler that does not draw by its ticket's random numbers counts as one that differs from them. */
  readonly requireDraws: boolean;
  readonly onSelection: 'report' | 'quarantine'; // what the two tests without proof lead to
  readonly proof: number; // nats of evidence
  readonly audit: Pick<ActorAudit, 'convict' | 'isQuarantined'>;
  readonly emit: (event: SuspicionEvent) => Promise<void>;
  readonly log: Logger;
}

/** How far a token may be from the ticket's random number, in fp32; the largest of 25,476 honest ones was below 10⁻⁶. */
export const exactDistance = 1e-4;
/** Groups that convict an actor. After the first, all of its groups are looked at. */
const maxDiffering = 2;

/** The evidence of one test against one actor. */
interface Evidence {
  readonly nats: Float64Array; // of each bet
  groups: number;
}
type Test = SuspicionEvent['why'];

/** What is known of one token. */
interface Position extends KnownPosition {
  readonly distance: number; // from its random number
}

/**
 * Looks for actors that draw several answers and send those that they like; their logprobs are honest. Three tests, each described in
 * `shared/rl/selection-evidence.ts`: the choice of each token is repeated from the ticket's random numbers; answers must
 * be as probable as draws are; and actors must solve as much as the others. The first is a proof and quarantines. The others bound
 * the chance of a false alarm for actors whose groups all arrive. An actor that gives up long groups selects, too,
 * though honestly, so by default they only report.
 */
export class SelectionAudit {
  readonly #options: SelectionAuditOptions;
  readonly #differing = new Map<string, number>(); // groups by actor
  readonly #evidence: Readonly<Record<Test, Map<string, Evidence>>> = {
    selection: new Map(),
    solve_rate: new Map(),
  };
  readonly #found: Readonly<Record<Test, Set<string>>> = {
    selection: new Set(),
    solve_rate: new Set(),
  }; // actors
  readonly #solved = new Map<number, { actor: string; share: number }[]>(); // by version, in order of arrival
  readonly #largest: Record<Test, number> = { selection: 0, solve_rate: 0 }; // nats of evidence so far
  #newest = -1; // version

  constructor(options: SelectionAuditOptions) {
    this.#options = options;
  }

  /** How many of the most probable tokens of a position are needed: all of a small vocabulary, else as many as servers show. */
  get mostProbable(): number {
    const { vocabSize } = this.#options;
    return vocabSize <= 64 ? vocabSize : 20;
  }

  /** Whether the tokens of a group are to be looked at; unpredictable without the run's seed. */
  isChosen({ actor, ticket: { ticketId } }: RolloutGroup): boolean {
    const { share, seed, audit } = this.#options;
    if (share === 0 || audit.isQuarantined(actor)) return false;
    return (
      this.#differing.has(actor) ||
      createRandom(`${seed} selection audit ${ticketId}`).next() < share
    );
  }

  /**
   * Looks at the choice of a group's tokens. Never rejects.
   *
   * @param score asks for the probabilities of a text.
   */
  async examine(group: RolloutGroup, score: ScoreText): Promise<void> {
    try {
      await this.#examine(group, score);
    } catch (caught) {
      replays.inc({ outcome: 'unavailable' });
      const { ticketId } = group.ticket;
      this.#options.log.debug({ ticketId, reason: errorText(caught) }, 'group not replayed');
    }
  }

  async #examine(group: RolloutGroup, score: ScoreText): Promise<void> {
    const { actor, certificate } = group;
    const { vocabSize, trainer, isAdapterRounded, requireDraws } = this.#options;
    const version = versionsIn(group.rollouts)[0]!;
    const isDrawn = drawsByTicket(certificate);
    // The certificate is enough, so this holds for a backend that gives no probabilities too.
    if (requireDraws && !isDrawn) {
      replays.inc({ outcome: 'other_draws' });
      await this.#differs(group, version, 0);
      return;
    }
    const arithmetic = coarser(trainer, certificate?.arithmetic ?? 'bf16');
    const isExact = arithmetic === 'fp32' && !isAdapterRounded;
    const known = await this.#positions(group, score);
    // Claims are finite, so a logprob that is not is the backend's.
    if (known.length === 0 || known.some(({ logprob }) => !Number.isFinite(logprob))) {
      replays.inc({ outcome: 'unavailable' });
      return;
    }
    const band = bandOf(arithmetic, isAdapterRounded).largest;
    const nats = selectionEvidence(known, vocabSize, band);
    await this.#add('selection', actor, nats, 1, version);

    const far = known.filter(({ distance }) => distance > exactDistance).length; // tokens
    if (isDrawn && !isExact) {
      replays.inc({ outcome: 'unavailable' });
      return;
    }
    replays.inc({ outcome: !isDrawn ? 'other_draws' : far > 0 ? 'differs' : 'agrees' });
    if (isDrawn && far > 0) await this.#differs(group, version, far);
  }

  /**
   * What is known of the tokens of a group: of each rollout those of its first version. Later ones may follow from a cache that
   * older weights wrote, so no version gives their probabilities. All texts are asked for at once, each once, so that a
   * backend can score them in one batch.
   */
  async #positions(
    { ticket, promptTokens, rollouts }: RolloutGroup,
    score: ScoreText,
  ): Promise<Position[]> {
    const asked = new Map<string, ReturnType<ScoreText>>();
    const ofRollouts = rollouts.map(async ({ tokens, versions }, r): Promise<Position[]> => {
      const [version, count] = versions[0]!;
      const judged = tokens.subarray(0, count);
      const key = `${version} ${judged.join()}`;
      const answer = asked.get(key) ?? score(version, Int32Array.of(...promptTokens, ...judged));
      asked.set(key, answer);
      const scored = await answer;
      if (scored === undefined) return [];
      const { logprobs, top } = scored;
      const draw = tokenDraws(ticket.samplingParams.seed, r);
      return Array.from(judged, (token, t) => {
        const place = promptTokens.length + t;
        const [from, to] = [place * top.k, (place + 1) * top.k];
        const here = {
          tokens: top.tokens.subarray(from, to),
          logprobs: top.logprobs.subarray(from, to),
        };
        const distance = distanceFromDraw(draw(), token, here, this.#options.vocabSize);
        return { logprob: logprobs[place]!, top: here.logprobs, distance };
      });
    });
    return (await Promise.all(ofRollouts)).flat();
  }

  /** Compares what actors solve. To be called for each group when it arrives, before any is dropped. Never rejects. */
  async solved(scored: ScoredGroup): Promise<void> {
    try {
      await this.#observe(scored);
    } catch (caught) {
      this.#options.log.warn({ reason: errorText(caught) }, 'selection not reported');
    }
  }

  async #observe({ group, scores }: ScoredGroup): Promise<void> {
    const { audit, maxStepsOffPolicy } = this.#options;
    const { actor, ticket } = group;
    // A ticket is issued again because of its group, so later attempts are not handed out blindly.
    if (ticket.split !== 'train' || ticket.attempt > 0 || audit.isQuarantined(actor)) return;
    const version = versionsIn(group.rollouts)[0]!;
    const right = scores.filter(({ isCorrect }) => isCorrect).length;
    const of = this.#solved.get(version) ?? [];
    of.push({ actor, share: right / scores.length });
    this.#solved.set(version, of);
    this.#newest = Math.max(this.#newest, version);
    for (const [old, groups] of this.#solved) {
      if (old >= this.#newest - maxStepsOffPolicy) continue; // more of it may come
      this.#solved.delete(old);
      await this.#compare(groups, old);
    }
  }

  async #compare(
    groups: readonly { actor: string; share: number }[],
    version: number,
  ): Promise<void> {
    for (const actor of new Set(groups.map((one) => one.actor))) {
      const [own, others] = [true, false].map((isOwn) =>
        groups.filter((one) => (one.actor === actor) === isOwn).map(({ share }) => share),
      ) as [number[], number[]];
      if (others.length === 0) continue;
      const nats = solveRateEvidence(own, others);
      await this.#add('solve_rate', actor, nats, own.length, version);
    }
  }

  async #differs(
    { actor, ticket: { ticketId } }: RolloutGroup,
    version: number,
    far: number,
  ): Promise<void> {
    const groups = (this.#differing.get(actor) ?? 0) + 1;
    this.#differing.set(actor, groups);
    const { log, audit } = this.#options;
    log.warn({ actor, ticketId, version, far, groups }, "group not drawn by its ticket's numbers");
    if (groups < maxDiffering) return;
    await audit.convict(
      { actor, gap: groups, bound: maxDiffering, groups, why: 'replay' },
      version,
    );
  }

  async #add(
    why: Test,
    actor: string,
    more: Float64Array,
    groups: number,
    version: number,
  ): Promise<void> {
    const { audit, onSelection, proof: bound, emit, log } = this.#options;
    if (audit.isQuarantined(actor)) return;
    const of = this.#evidence[why];
    const bets = why === 'selection' ? tilts.length : solveBets.length;
    const before = of.get(actor) ?? { nats: new Float64Array(bets), groups: 0 };
    const nats = addEvidence(before.nats, more);
    before.groups = nats <= 0 ? 0 : before.groups + groups;
    of.set(actor, before);
    this.#largest[why] = Math.max(this.#largest[why], nats);
    largestEvidence.set({ kind: why }, this.#largest[why]);
    if (nats < bound || this.#found[why].has(actor)) return;
    this.#found[why].add(actor);
    const finding = { actor, bound, groups: before.groups, why };
    if (onSelection === 'quarantine') return audit.convict({ ...finding, gap: nats }, version);
    suspected.set(new Set([...this.#found.selection, ...this.#found.solve_rate]).size);
    log.error({ ...finding, nats }, 'actor may select its answers');
    await emit({ v: 1, at: Date.now(), kind: 'suspicion', ...finding, nats, version });
  }
}
