import type { JsMsg } from 'nats';
import type { Broker } from './broker.js';
import { MessageHeaders } from './message-headers.js';
import { bodyHeader } from './publish.js';
import { uploadHeader } from './uploads.js';

/** What a message says, where that lies elsewhere because it was too large. It does not keep the message. */
export interface DistantBody {
  readonly name: string; // for people
  /** @throws {PermanentError} if it can never be read; undefined if it is not there. */
  read(): Promise<Uint8Array | undefined>;
  delete(): Promise<void>;
}

/** Where the body of a message lies; undefined if that is the message itself. */
export function distantBody(
  { bodies, uploads, names }: Pick<Broker, 'bodies' | 'uploads' | 'names'>,
  message: Pick<JsMsg, 'headers' | 'data' | 'subject'>,
): DistantBody | undefined {
  const headers = new MessageHeaders(message);
  const object = headers.get(bodyHeader);
  if (object !== undefined) {
    return { name: object, read: () => bodies.get(object), delete: () => bodies.delete(object) };
  }
  if (headers.get(uploadHeader) === undefined) return undefined;
  const subject = names.uploadsOf(message.subject);
  const manifest = message.data.slice();
  let isRead = false;
  return {
    name: `among ${subject}`,
    read: async () => {
      const body = await uploads.get(subject, manifest);
      isRead = body !== undefined;
      return body;
    },
    delete: () => uploads.delete(subject, manifest, isRead),
  };
}
