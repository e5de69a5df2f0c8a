import type { Broker } from '../../shared/broker/broker.js';
import type { Leadership } from '../../shared/broker/leadership.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { LearnerConfig } from '../config.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import type { Traces } from '../checkpoints/traces.js';
import type { RunWatch } from '../report/run-watch.js';
import type { TrainingClock } from '../step/training-clock.js';

/** What a life of a run is lived with. */
export interface SessionOptions {
  readonly settings: LearnerConfig;
  readonly config: RunConfig;
  readonly dataset: Dataset;
  readonly vocabSize: number;
  readonly runDir: string;
  readonly traces: Traces; // of the run, before this session
  readonly runWatch: Pick<RunWatch, 'metrics' | 'live'>;
  readonly broker: Broker;
  readonly client: TinkerClient;
  readonly leadership: Leadership;
  readonly scope: TaskScope; // of this session's work in the background
  readonly clock: TrainingClock;
  /** Asks the learner to stop: it gives up the step in progress, checkpoints and returns. */
  readonly stop: AbortSignal;
  readonly log: Logger;
}
