import { askFor, type Link, streamState } from './link.js';
import { streamSettings } from './run-layout.js';

/** What a server stores for a run. */
export interface StoredSize {
  readonly streams: number; // those of buckets included; 0: it knows no such run
  readonly messages: number;
  readonly bytes: number;
}

export async function storedSize(link: Link): Promise<StoredSize> {
  const states = await Promise.all(streamNames(link).map((name) => streamState(link, name)));
  const found = states.flatMap((state) => state ?? []);
  return {
    streams: found.length,
    messages: found.reduce((sum, { messages }) => sum + messages, 0),
    bytes: found.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

/** Deletes everything that the server stores for the run. */
export async function deleteStored(link: Link): Promise<void> {
  for (const name of streamNames(link)) {
    await askFor(link, `delete stream ${name}`, () => link.jsm.streams.delete(name));
  }
}

/** The streams of the run, those of its buckets included. The ledger's is the last: it holds the lease under which an interrupted deletion is repeated. */
function streamNames({ names }: Link): string[] {
  const ledger = `KV_${names.buckets.ledger}`;
  const all = streamSettings(names, { trainTickets: 0, evalTickets: 0 }).map(({ name }) => name);
  return [...all.filter((name) => name !== ledger), ledger];
}
