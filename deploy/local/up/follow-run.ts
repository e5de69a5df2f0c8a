import type { Broker } from '../../../shared/broker/broker.js';
import {
  evalText,
  progressSince,
  quarantineText,
  shareText,
  statusText,
  withEvent,
  type Goal,
} from './progress.js';
import type { Screen } from './screen.js';

const refreshMs = 1_000;

/**
 * Shows the run's events as they happen, until `signal` aborts. Of the history of a run that goes on only
 * what still holds is shown: which actors are quarantined.
 */
export async function followRun(
  broker: Broker,
  { goal, screen, signal }: { goal: Goal; screen: Screen; signal: AbortSignal },
): Promise<void> {
  const since = Date.now();
  let progress = progressSince(since);
  const show = () => {
    screen.status(statusText(progress, goal, Date.now(), screen.columns()));
  };
  const refresh = setInterval(show, refreshMs);
  try {
    for await (const event of broker.events.read(signal)) {
      progress = withEvent(progress, event);
      const isOld = event.at < since;
      if (event.kind === 'eval' && !isOld) screen.note(evalText(event.result));
      if (event.kind === 'quarantine') {
        screen.note(`${isOld ? 'from before: ' : ''}${quarantineText(event)}`);
      }
      if (event.kind === 'share' && !isOld) screen.note(shareText(event));
      if (event.kind === 'step' && !isOld) show();
    }
  } finally {
    clearInterval(refresh);
    screen.status('');
  }
}
