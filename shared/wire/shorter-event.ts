import type { RunEvent } from './run-event.js';

/** Name of the metric that a shortened step has: how many others it lacks. */
const leftOut = 'metrics_left_out';

/**
 * Yields ever shorter forms of an event that is too large for a message. Each is a valid event that says what it lacks, so
 * that every reader, also an older one, has the rest of it. Kinds whose size is bounded have none, nor have checkpoints,
 * which must be whole.
 */
export function* shorterEvents(event: RunEvent): Generator<RunEvent> {
  if (event.kind === 'eval') {
    const result = { ...event.result, answers: { sampled: none, greedy: none } };
    yield { ...event, result };
    yield { ...event, result: { ...result, byDifficulty: [] } };
  } else if (event.kind === 'step') {
    const all = Object.entries(event.metrics);
    for (let kept = all.length >> 1; kept > 0; kept >>= 1) {
      const metrics = { ...Object.fromEntries(all.slice(0, kept)), [leftOut]: all.length - kept };
      yield { ...event, metrics };
    }
  } else if (event.kind === 'end') {
    const { run, reason, steps, version } = event.summary;
    yield { ...event, summary: { run, reason, steps, version, shortened: true } };
  }
}

const none = { correct: [], total: [] };

/** Whether an event lacks something because it was too large for a message. */
export function isShortened(event: RunEvent): boolean {
  if (event.kind === 'eval') return event.result.answers.sampled.total.length === 0;
  if (event.kind === 'step') return leftOut in event.metrics;
  return event.kind === 'end' && event.summary['shortened'] === true;
}
