import type { Broker } from '../../shared/broker/broker.js';
import {
  evalText,
  heldText,
  progressSince,
  quarantineText,
  shareText,
  statusText,
  withEvent,
  type Goal,
} from './progress.js';
import type { Screen } from './screen.js';

const refreshMs = 1_000;
const heldEveryMs = 60_000; // between notes that tickets are held, unless one was taken back

/**
 * Shows the run's events as they happen, until `signal` aborts. Of the history of a run that goes on only
 * what still holds is shown: which actors are quarantined.
 */
export async function followRun(
  broker: { readonly events: Pick<Broker['events'], 'read'> },
  { goal, screen, signal }: { goal: Goal; screen: Screen; signal: AbortSignal },
): Promise<void> {
  const since = Date.now();
  let progress = progressSince(since);
  let heldAt = -Infinity; // shown last, in ms since the epoch
  const show = () => {
    screen.status(statusText(progress, goal, Date.now(), screen.columns()));
  };
  const refresh = setInterval(show, refreshMs);
  try {
    for await (const event of broker.events.read(signal)) {
      progress = withEvent(progress, event);
      const isOld = event.at < since;
      if (event.kind === 'quarantine') {
        screen.note(`${isOld ? 'from before: ' : ''}${quarantineText(event)}`);
      }
      if (isOld) continue;
      if (event.kind === 'eval') screen.note(evalText(event.result));
      if (event.kind === 'share') screen.note(shareText(event));
      if (event.kind === 'held' && (event.withdrawn > 0 || event.at - heldAt > heldEveryMs)) {
        heldAt = event.at;
        screen.note(heldText(event));
      }
      if (event.kind === 'step') show();
    }
  } finally {
    clearInterval(refresh);
    screen.status('');
  }
}
