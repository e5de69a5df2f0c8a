import { Gauge } from 'prom-client';
import type { Broker } from '../shared/broker/broker.js';
import { errorText } from '../shared/errors.js';
import type { Logger } from '../shared/telemetry/logger.js';

const streamDepth = new Gauge({
  name: 'rl_stream_depth',
  help: 'Messages in each stream of the run, leased and unacknowledged ones included',
  labelNames: ['stream'],
});

const everyMs = 5_000;

/** Keeps `rl_stream_depth` up to date until disposed of. */
export function exportDepths(broker: Pick<Broker, 'depths'>, log: Logger): Disposable {
  const timer = setInterval(() => {
    broker.depths().then(
      (depths) => {
        for (const [stream, depth] of Object.entries(depths)) streamDepth.set({ stream }, depth);
      },
      (caught: unknown) => {
        log.debug({ reason: errorText(caught) }, 'could not look at the streams');
      },
    );
  }, everyMs);
  return {
    [Symbol.dispose]: () => {
      clearInterval(timer);
    },
  };
}
