import type { JsMsg, Msg, MsgHdrs, StoredMsg } from 'nats';

/**
 * The headers of a message. nats-server forwards any bytes as headers, and the client throws at each access
 * to malformed ones, so all code reads headers through this class.
 */
export class MessageHeaders {
  readonly isMalformed: boolean; // then no header can be read
  readonly #headers: MsgHdrs | undefined;

  constructor(message: Pick<JsMsg, 'headers'> | Pick<Msg, 'headers'> | Pick<StoredMsg, 'header'>) {
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
