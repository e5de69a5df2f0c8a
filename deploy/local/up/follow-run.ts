import type { Broker } from '../../../shared/broker/broker.js';
import {
  evalText,
  noProgress,
  quarantineText,
  statusText,
  withEvent,
  type Goal,
} from './progress.js';
import type { Screen } from './screen.js';

const refreshMs = 1_000;

/** Shows the run's events as they happen, until `signal` aborts. */
export async function followRun(
  broker: Broker,
  { goal, screen, signal }: { goal: Goal; screen: Screen; signal: AbortSignal },
): Promise<void> {
  const startedAt = Date.now();
  let progress = noProgress;
  const show = () => {
    screen.status(statusText(progress, goal, startedAt, Date.now(), screen.columns()));
  };
  const refresh = setInterval(show, refreshMs);
  try {
    for await (const event of broker.events.read(signal)) {
      progress = withEvent(progress, event);
      if (event.kind === 'eval') screen.note(evalText(event.result));
      if (event.kind === 'quarantine') screen.note(quarantineText(event));
      if (event.kind === 'step') show();
    }
  } finally {
    clearInterval(refresh);
    screen.status('');
  }
}
