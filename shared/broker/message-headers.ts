import type { JsMsg, Msg, MsgHdrs, StoredMsg } from 'nats';

type WithHeaders = Pick<JsMsg, 'headers'> | Pick<Msg, 'headers'> | Pick<StoredMsg, 'header'>;

/** Four times what is reserved for ours (`largestBody`). */
const mostBytes = 16_384;

/**
 * The headers of a message. nats-server forwards any bytes as headers, and the client throws at each access
 * to malformed ones, so headers that anyone but the learner may have written are read through this class. Very many count as malformed and are not decoded: the
 * client takes quadratic time, minutes for the headers that fit into one message.
 */
export class MessageHeaders {
  readonly isMalformed: boolean; // then no header can be read
  readonly #headers: MsgHdrs | undefined;

  constructor(message: WithHeaders) {
    if (encodedBytes(message) > mostBytes) {
      this.isMalformed = true;
      return;
    }
    try {
      this.#headers = 'header' in message ? message.header : message.headers;
      this.isMalformed = false;
    } catch {
      this.isMalformed = true;
    }
  }

  /** Whether the message has no headers at all, not even malformed ones. */
  get isNone(): boolean {
    return !this.isMalformed && this.#headers === undefined;
  }

  /** @returns undefined if the header is missing or empty. */
  get(name: string): string | undefined {
    return this.#headers?.get(name) || undefined;
  }
}

/** The size of the headers before they are decoded, which the client shows only in its own fields. */
function encodedBytes(message: WithHeaders): number {
  const { smr, msg = message } = message as Internals;
  if (smr !== undefined) return ((smr.message.hdrs?.length ?? 0) * 3) / 4; // in base64
  return (msg as Internals)._msg?.hdr ?? 0; // -1: none
}

interface Internals {
  readonly smr?: { readonly message: { readonly hdrs?: string } }; // of a stored message
  readonly msg?: object; // of one that a consumer delivers
  readonly _msg?: { readonly hdr: number };
}
