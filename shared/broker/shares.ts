import { Gauge } from 'prom-client';
import { askFor, type Link } from './link.js';

const atLimit = new Gauge({
  name: 'rl_senders_at_limit',
  help: 'Actors that have as many messages in a stream as one may have.',
  labelNames: ['stream'],
});

/** A sender that has used up what one may have in a stream. */
export interface FullShare {
  readonly stream: 'rollouts' | 'uploads' | 'dead';
  readonly sender: string; // as in the subject
  readonly messages: number;
}

/** Who has used up his share of a stream, and is refused there; of dead letters, whose oldest go. */
export async function fullShares(link: Link): Promise<FullShare[]> {
  const found: FullShare[] = [];
  for (const stream of ['rollouts', 'uploads', 'dead'] as const) {
    const name = link.names.streams[stream];
    const info = await askFor(link, `look at stream ${name}`, () => link.jsm.streams.info(name));
    const share = info?.config.max_msgs_per_subject ?? -1;
    // Asked for the subjects of a stream that is only being made, nats-server 2.9.10 ends with a panic.
    const isPossible = info !== undefined && share > 0 && info.state.messages >= share;
    const counts = isPossible
      ? await askFor(link, `look at stream ${name}`, () =>
          link.jsm.streams.info(name, { subjects_filter: '>' }),
        )
      : undefined;
    const full = Object.entries(counts?.state.subjects ?? {}).filter(([, count]) => count >= share);
    atLimit.set({ stream }, full.length);
    for (const [subject, messages] of full) {
      found.push({ stream, sender: subject.split('.').at(-1)!, messages });
    }
  }
  return found;
}
