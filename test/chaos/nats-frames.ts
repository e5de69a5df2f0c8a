/** A message that a client published to its NATS server. */
export interface Published {
  readonly subject: string;
  readonly headers: string; // as transmitted; '' if there are none
  readonly data: Buffer;
}

/**
 * Parses the bytes that a client sends to a NATS server and reports each published message.
 *
 * Source: NATS client protocol, docs.nats.io: lines end with CRLF; PUB and HPUB are followed by
 * the announced number of bytes and CRLF.
 *
 * @param onMessage receives each message and returns whether it may reach the server.
 * @returns a function from received bytes to those to pass on: whole lines and messages.
 */
export function publishedBy(onMessage: (message: Published) => boolean): (bytes: Buffer) => Buffer {
  let rest = Buffer.alloc(0);
  return (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    const passedOn: Buffer[] = [];
    for (;;) {
      const end = rest.indexOf('\r\n');
      if (end === -1) break;
      const words = rest
        .subarray(0, end)
        .toString('latin1')
        .split(/[ \t]+/);
      const verb = words[0]!.toUpperCase();
      const hasBody = verb === 'PUB' || verb === 'HPUB';
      const size = hasBody ? Number(words.at(-1)) : 0;
      const start = end + 2;
      const next = hasBody ? start + size + 2 : start;
      if (rest.length < next) break;
      let isWanted = true;
      if (hasBody) {
        const body = start + (verb === 'HPUB' ? Number(words.at(-2)) : 0);
        isWanted = onMessage({
          subject: words[1]!,
          headers: rest.subarray(start, body).toString(),
          data: Buffer.from(rest.subarray(body, start + size)),
        });
      }
      if (isWanted) passedOn.push(rest.subarray(0, next));
      rest = rest.subarray(next);
    }
    return Buffer.concat(passedOn);
  };
}
