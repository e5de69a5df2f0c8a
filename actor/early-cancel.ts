import { addAbortListener, setMaxListeners } from 'node:events';
import { GivenUp } from '../shared/wire/death-cause.js';
import type { PolicyManifest } from '../shared/wire/policy-manifest.js';
import type { Ticket } from '../shared/wire/ticket.js';

/** The decisive token of the group comes from a version that is now too old, so the group cannot be trained on. */
export class GroupStale extends GivenUp {
  override readonly name = 'GroupStale';

  /**
   * @param version that of the group's oldest token or, where the bound holds for tokens, of its newest.
   * @param smallestUseful the lowest version that can still be trained on.
   */
  constructor(by: DecisiveToken, version: number, smallestUseful: number) {
    super(
      `outdated: ${by === 'oldest' ? 'sampling began with' : 'its newest token is of'} version ${version}, and only ` +
        `${smallestUseful} or newer can still be trained on`,
      { kind: 'outdated' },
    );
  }
}

/** The token whose version decides whether a group can be trained on. */
type DecisiveToken = 'oldest' | 'newest';

/** The learner no longer needs a group for this ticket: it has one, or has given the ticket up. */
export class TicketEnded extends Error {
  override readonly name = 'TicketEnded';
}

/** A ticket in progress, until it is disposed of. */
interface WatchedTicket extends Disposable {
  /** Aborts with the process, or with one of the errors above as its reason. */
  readonly signal: AbortSignal;
  /** Records that the group's next tokens are drawn from `version`: the first call gives its oldest, the last its newest. */
  onDraw(version: number): void;
  /** Records that the group still has no token, because the call that was to draw its first ones has failed. */
  noneDrawn(): void;
}

type WorkTicket = Pick<Ticket, 'split' | 'order' | 'ticketId' | 'issuedAtVersion'>;
type News = Pick<PolicyManifest, 'version' | 'smallestUsefulVersion' | 'consumedBelow'>;

/**
 * Cancels work that a newly published version has made useless, at any stage: a ticket just leased, a
 * group waiting for the sampler, a group between two of its tokens. A group without tokens is never
 * too old, because the newest policy samples it.
 */
export class EarlyCancel {
  readonly #checks = new Set<() => void>();
  readonly #by: DecisiveToken;
  #news: News = { version: 0, smallestUsefulVersion: 0, consumedBelow: 0 };

  constructor(by: DecisiveToken = 'oldest') {
    this.#by = by;
  }

  /** @param signal ends the process. */
  watch(ticket: WorkTicket, signal: AbortSignal): WatchedTicket {
    const useless = new AbortController();
    // AbortSignal.any would leave an entry on the signal of the process for every ticket; this one is removed.
    setMaxListeners(0, signal); // one listener per ticket in progress is not a leak
    if (signal.aborted) useless.abort(signal.reason);
    const link = addAbortListener(signal, () => {
      useless.abort(signal.reason);
    });
    let token: number | undefined;
    const check = (): void => {
      const reason = cancelReason(ticket, { by: this.#by, version: token }, this.#news);
      if (reason !== undefined) useless.abort(reason);
    };
    this.#checks.add(check);
    check();
    return {
      signal: useless.signal,
      onDraw: (version) => {
        if (this.#by === 'newest') token = version;
        token ??= version;
        check();
      },
      noneDrawn: () => {
        token = undefined;
      },
      [Symbol.dispose]: () => {
        this.#checks.delete(check);
        link[Symbol.dispose]();
      },
    };
  }

  published(news: News): void {
    this.#news = news;
    for (const check of this.#checks) check();
  }
}

/** The reason why a ticket's group can never be trained on; undefined if it still can. */
function cancelReason(
  { split, order, ticketId, issuedAtVersion }: WorkTicket,
  decisive: { readonly by: DecisiveToken; readonly version: number | undefined },
  { version, consumedBelow = 0, smallestUsefulVersion }: News,
): Error | undefined {
  if (split === 'eval') return undefined; // held-out problems have neither deadline nor order
  // A learner restored from a checkpoint issues again tickets that its predecessor had consumed, so a
  // manifest older than the ticket does not apply to it.
  const isKnown = version >= issuedAtVersion;
  if (isKnown && order < consumedBelow) return new TicketEnded(`${ticketId} has already ended`);
  if (decisive.version === undefined || decisive.version >= smallestUsefulVersion) return undefined;
  return new GroupStale(decisive.by, decisive.version, smallestUsefulVersion);
}
