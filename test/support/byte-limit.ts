import type { Broker } from '../../shared/broker/broker.js';

/**
 * Limits a stream to its present bytes, as an operator of the server may, until the result is
 * disposed of.
 */
export async function limitToPresentBytes(
  { link: { jsm } }: Broker,
  stream: string,
): Promise<AsyncDisposable> {
  const { state } = await jsm.streams.info(stream);
  await jsm.streams.update(stream, { max_bytes: Math.max(1, state.bytes) });
  return {
    [Symbol.asyncDispose]: async () => {
      await jsm.streams.update(stream, { max_bytes: -1 });
    },
  };
}
