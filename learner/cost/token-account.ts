import type { TokenTotals, Usage } from '../../shared/wire/ledger.js';

/** The tokens of a scored group that has arrived. */
export interface GroupTokens {
  readonly sampled: number; // of its answers
  readonly prompt: number; // of its prompt, which its rollouts share
  readonly rollouts: number;
}

/** How the tokens of a group ended: they were trained on, or wasted for a reason. */
type End = { readonly kind: 'trained' } | { readonly kind: 'wasted'; readonly reason: string };

interface HeldTokens extends GroupTokens {
  end?: End; // none: in flight
}

const nothingYet = {
  tokens: { trained: 0, masked: 0, wasted: {}, prompts: { sampled: 0, trained: 0 } },
  counted: [],
};

/** The most message numbers that a checkpoint lists; a message is delivered again at once or never. */
const maxCounted = 4_096;

/**
 * The account of the tokens that the learner has received. Every token is trained on, wasted for one reason,
 * or in flight: its group waits to be trained on.
 *
 * A crash brings back the groups whose messages no checkpoint covers, and they are counted again. So their
 * tokens are held apart, by the stream sequence number of the message, and enter the totals of a checkpoint only
 * with the first one that covers them. A restored account is therefore exact, whatever was killed; only the tokens
 * of groups that were refused as malformed since the checkpoint are missing from it.
 */
export class TokenAccount {
  #settled: TokenTotals; // of messages that the queue can no longer deliver
  readonly #held = new Map<number, HeldTokens>();

  readonly #counted: ReadonlySet<number>; // by an earlier session
  readonly #unseen: Set<number>; // of these, not delivered again yet

  /** @param before what the restored checkpoint has counted. */
  constructor({ tokens, counted }: Pick<Usage, 'tokens' | 'counted'> = nothingYet) {
    this.#settled = tokens;
    this.#counted = new Set(counted);
    this.#unseen = new Set(counted);
  }

  /** Counts a group that has arrived; it is in flight until it ends. */
  receive(seq: number, tokens: GroupTokens): void {
    this.#unseen.delete(seq);
    if (this.#counted.has(seq)) return;
    this.discard(seq, 'lost'); // the server has lost an older message and uses its number again
    this.#held.set(seq, { ...tokens });
  }

  /** The group was trained on. */
  train(seq: number): void {
    this.#end(seq, { kind: 'trained' });
  }

  /** The group will not be trained on; the first reason counts. */
  waste(seq: number, reason: string): void {
    this.#end(seq, { kind: 'wasted', reason });
  }

  /** Wastes a group whose message is settled already, so that no crash can bring it back. */
  discard(seq: number, reason: string): void {
    this.waste(seq, reason);
    this.#settle([seq]);
  }

  /** Counts trained tokens that the loss or a mask has left out. */
  mask(tokens: number): void {
    this.#settled = { ...this.#settled, masked: this.#settled.masked + tokens };
  }

  /** Counts the tokens of trained examples, prompts included. */
  learn(tokens: number): void {
    this.#settled = { ...this.#settled, examples: (this.#settled.examples ?? 0) + tokens };
  }

  /**
   * What a checkpoint that is taken now counts.
   *
   * @param covered sequence numbers of the messages that it acknowledges. One that has not ended belongs to a ticket
   *   that ended otherwise, and is a duplicate.
   * @returns `settle` must be called once the checkpoint is written.
   */
  capture(
    covered: readonly number[],
  ): Pick<Usage, 'tokens' | 'counted'> & { readonly settle: () => void } {
    for (const seq of covered) this.waste(seq, 'duplicate');
    return {
      tokens: this.#with(covered),
      counted: [...new Set([...this.#unseen, ...covered])].sort((a, b) => a - b).slice(-maxCounted),
      settle: () => {
        this.#settle(covered);
      },
    };
  }

  /** The totals so far, without the tokens in flight. */
  get totals(): TokenTotals {
    return this.#with([...this.#held.keys()]);
  }

  /** Tokens of groups that have arrived and not ended. */
  get inFlight(): number {
    let sum = 0;
    for (const { sampled, end } of this.#held.values()) if (end === undefined) sum += sampled;
    return sum;
  }

  #end(seq: number, end: End): void {
    const held = this.#held.get(seq);
    if (held !== undefined) held.end ??= end;
  }

  #settle(seqs: readonly number[]): void {
    this.#settled = this.#with(seqs);
    for (const seq of seqs) this.#held.delete(seq);
  }

  #with(seqs: readonly number[]): TokenTotals {
    return seqs.reduce((totals, seq) => {
      const held = this.#held.get(seq);
      return held?.end === undefined ? totals : withGroup(totals, held, held.end);
    }, this.#settled);
  }
}

function withGroup(totals: TokenTotals, group: GroupTokens, end: End): TokenTotals {
  const { sampled, prompt, rollouts } = group;
  const { trained, wasted, prompts } = totals;
  const isTrained = end.kind === 'trained';
  return {
    ...totals,
    trained: trained + (isTrained ? sampled : 0),
    wasted: isTrained ? wasted : { ...wasted, [end.reason]: (wasted[end.reason] ?? 0) + sampled },
    prompts: {
      sampled: prompts.sampled + prompt,
      trained: prompts.trained + (isTrained ? prompt * rollouts : 0),
    },
  };
}
