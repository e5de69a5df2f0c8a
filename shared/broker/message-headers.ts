import type { JsMsg, MsgHdrs, StoredMsg } from 'nats';

/**
 * What a sender wrote beside its message. nats-server passes on whatever bytes stand there, and the
 * client fails over and over at those that are no headers; so they are looked at here alone.
 */
export class MessageHeaders {
  readonly isMalformed: boolean; // then none of them can be read
  readonly #headers: MsgHdrs | undefined;

  constructor(message: Pick<JsMsg, 'headers'> | Pick<StoredMsg, 'header'>) {
    try {
      this.#headers = 'header' in message ? message.header : message.headers;
      this.isMalformed = false;
    } catch {
      this.isMalformed = true;
    }
  }

  /** Undefined where it is missing or empty. */
  get(name: string): string | undefined {
    return this.#headers?.get(name) || undefined;
  }
}
