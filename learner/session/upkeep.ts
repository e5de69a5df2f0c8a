import type { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { ActorAudit } from '../audit/actor-audit.js';
import type { LearnerConfig } from '../config.js';
import type { UnackedGroups } from '../groups/unacked-groups.js';
import type { Publisher } from '../publish/publisher.js';
import { IdleReports, idleReportEveryMs } from '../report/idle-reports.js';
import { RefusalReports } from '../report/refusal-reports.js';
import type { RunWatch } from '../report/run-watch.js';
import type { IdleClock } from '../step/idle-clock.js';

export interface UpkeepOptions {
  readonly settings: Pick<LearnerConfig, 'leaseSeconds'>;
  readonly broker: Pick<Broker, 'isConnected'> & {
    readonly events: Pick<Broker['events'], 'emit'>;
  };
  readonly runWatch: Pick<RunWatch, 'live' | 'leases' | 'metrics'>;
  readonly idle: Pick<IdleClock, 'seconds'>;
  readonly unacked: Pick<UnackedGroups, 'extendLeases'>;
  readonly audit: Pick<ActorAudit, 'checkLiveActors'>;
  readonly publisher: Pick<Publisher, 'maintain'>;
  /** Called with each check of the actors. */
  readonly onCheck: () => void;
  readonly scope: Pick<TaskScope, 'track'>;
  readonly log: Logger;
}

const checkActorsEveryMs = 5_000;
/** How often published versions are checked: for an outage that lost some, links that expire, actors that ask for adapters. */
const maintainEveryMs = 2_000;

/**
 * What a session does by the clock, until this is disposed of: it extends the leases of groups, checks the live actors, says what
 * the learner waits for and maintains the published versions.
 */
export function keepUp(options: UpkeepOptions): Disposable {
  const { settings, broker, runWatch, unacked, audit, publisher, onCheck, scope, log } = options;
  const refusals = new RefusalReports(broker.events, log);
  const waits = new IdleReports(options.idle, () => runWatch.metrics, log);
  let isMaintaining = false;
  const timers = [
    setInterval(
      () => {
        unacked.extendLeases();
      },
      (1_000 * settings.leaseSeconds) / 3,
    ),
    setInterval(() => {
      audit.checkLiveActors(runWatch.live);
      onCheck();
      void scope.track(refusals.report(runWatch.leases));
    }, checkActorsEveryMs),
    setInterval(() => {
      waits.report();
    }, idleReportEveryMs),
    setInterval(() => {
      if (!broker.isConnected || isMaintaining) return;
      isMaintaining = true;
      const maintained = publisher.maintain().finally(() => {
        isMaintaining = false;
      });
      void scope.track(maintained);
    }, maintainEveryMs),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const timer of timers) clearInterval(timer);
    },
  };
}
