import type { RunConfig } from '../../../shared/run/run-config.js';
import type { Flow } from './flow.js';
import type { History } from './history.js';
import type { SampledGroup } from './sampled-group.js';

/**
 * The phase of the run: `live` while a learner leads it or the first one is starting, `stopped` while an
 * unfinished run has no learner, `silent` while its NATS does not answer, `over` once it has ended or only
 * its folder is left.
 */
export type Phase = 'live' | 'stopped' | 'silent' | 'over';

/** Everything that the page shows, at one moment. */
export interface RunView {
  readonly run: string;
  readonly at: number; // ms since the epoch
  readonly phase: Phase;
  readonly config: RunConfig | undefined; // none before a learner has written it
  readonly history: History;
  readonly flow: Flow | undefined; // none of a run that is over
  readonly samples: readonly SampledGroup[]; // the newest first
}
