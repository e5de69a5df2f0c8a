import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { FoundRun } from '../existing-run/find-run.js';
import type { NatsBinary } from '../nats-server/binary.js';
import type { StopSignals } from '../processes/stop-signals.js';
import type { Screen } from '../up/screen.js';
import type { EvalConfig } from './eval-config.js';
import type { FoundVersion } from './find-version.js';

/** What an evaluation is of, and where it happens. */
export interface MeasureOptions {
  readonly request: EvalConfig;
  readonly found: FoundRun;
  readonly version: FoundVersion;
  readonly natsBinary: NatsBinary;
  readonly folder: string; // of its own: logs, streams and checkpoints of this evaluation
  readonly screen: Screen;
  readonly stop: StopSignals;
  readonly log: Logger;
}
