import { type Server, STATUS_CODES } from 'node:http';

/** How long a request may take to arrive, in milliseconds. */
export interface Patience {
  readonly headersMs: number;
  readonly wholeMs: number;
}

/** The same as options of a server, which looks often enough that hardly more time is given. */
export function timeLimits({ headersMs, wholeMs }: Patience) {
  return {
    headersTimeout: headersMs,
    requestTimeout: wholeMs,
    connectionsCheckingInterval: headersMs / 4,
  };
}

/**
 * Answers a client that sends no HTTP, too much of it, or too slowly, and closes its connection.
 *
 * @param complaint what such an answer says, as JSON: clients take an empty 400 for a proxy's.
 */
export function showOut(server: Server, complaint: (detail: string) => object): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!socket.writable) return;
    const { status, detail } = explain(error);
    const body = JSON.stringify(complaint(detail));
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
    // Whoever goes on sending has had its answer.
    socket.end(`${head}${body}`, () => socket.destroy());
  });
}

function explain({ code, message }: NodeJS.ErrnoException): { status: number; detail: string } {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return { status: 408, detail: 'the request took too long to arrive' };
  if (code === 'HPE_HEADER_OVERFLOW') return { status: 431, detail: 'the headers are too large' };
  return { status: 400, detail: `this is not HTTP: ${message}` };
}
