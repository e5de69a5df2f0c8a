import { once } from 'node:events';
import { connect } from 'node:net';

/**
 * Sends a request as slowly as a client that wants to occupy a server: the beginning at once, then
 * one more piece every few milliseconds, endlessly.
 *
 * @returns the server's whole answer when it closes the connection.
 */
export async function sendSlowly(port: number, beginning: string, piece: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let said = '';
  socket.on('data', (chunk: Buffer) => (said += chunk.toString()));
  socket.on('error', () => undefined); // the connection may be closed while a piece is in transit
  await once(socket, 'connect');
  socket.write(beginning);
  const sending = setInterval(() => socket.write(piece), 5);
  await once(socket, 'close');
  clearInterval(sending);
  return said;
}
