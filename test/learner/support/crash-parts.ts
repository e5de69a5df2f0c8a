import { TokenAccount } from '../../../learner/cost/token-account.js';
import { Changes } from '../../../shared/base/changes.js';
import { BrokenPolicyWatch } from '../../../learner/stop/broken-policy-watch.js';
import { NoSignalWatch } from '../../../learner/stop/no-signal-watch.js';
import { Admission } from '../../../learner/groups/admission.js';
import type { TicketTableState } from '../../../learner/tickets/ticket-table.js';
import { Certificates } from '../../../learner/audit/certificates.js';
import { GroupReceiver } from '../../../learner/groups/group-receiver.js';
import type { ArrivedGroup } from '../../../learner/groups/check-scored-group.js';
import { GroupStats } from '../../../learner/groups/group-stats.js';
import { UnackedGroups } from '../../../learner/groups/unacked-groups.js';
import { TicketSource } from '../../../learner/tickets/ticket-source.js';
import { ticketBound } from '../../../shared/rl/capacity.js';
import type { Usage } from '../../../shared/wire/ledger.js';
import type { Rewind } from '../../../shared/rl/staleness.js';
import { newTicketKey, TicketIds } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/log.js';
import { runConfig } from '../../support/messages.js';

export const limits = {
  groupsPerBatch: 2,
  numSubsteps: 1,
  numMinibatches: 1,
  maxStepsOffPolicy: 2,
  windowPolicy: 'wait',
  maxSteps: Infinity,
} as const;
const config = runConfig({ groupSize: 2, sampling: { temperature: 1, maxTokens: 4 } });
const problems = ['p-0', 'p-1', 'p-2'];
const ids = new TicketIds(newTicketKey());

/** The part of a checkpoint that a restored learner uses. */
export interface Saved {
  readonly step: number;
  readonly version: number;
  readonly rewinds: readonly Rewind[];
  readonly table?: TicketTableState;
  readonly usage?: Pick<Usage, 'tokens' | 'counted'>;
}

/**
 * A JetStream work queue: a message whose id was published before is dropped, even if the first one was
 * removed long ago. Only a restart of the server forgets the ids of removed messages.
 */
export class Queue<T> {
  readonly held = new Map<number, { readonly id: string; readonly value: T }>();
  #known = new Set<string>();
  #seq = 0;

  publish(id: string, value: T): void {
    if (this.#known.has(id)) return;
    this.#known.add(id);
    this.held.set(++this.#seq, { id, value });
  }

  /** Number of messages ever stored. */
  get soFar(): number {
    return this.#seq;
  }

  restart(): void {
    this.#known = new Set([...this.held.values()].map(({ id }) => id));
  }
}

/** The parts of one learner session that decide about groups. */
export interface LearnerSession {
  readonly admission: Admission<ArrivedGroup>;
  readonly tickets: TicketSource;
  readonly unacked: UnackedGroups;
  readonly account: TokenAccount;
  readonly receiver: GroupReceiver;
  readonly changes: Changes;
  readonly delivered: Set<number>; // sequence numbers of the scored queue
  deathsHeard: number;
}

/**
 * Starts a learner session, new or restored from the ledger, which publishes `version` first.
 *
 * @param ticketsSoFar number of tickets that earlier sessions published.
 */
export function startSession(
  ledger: Saved,
  version: number,
  isResumed: boolean,
  ticketsSoFar: number,
): LearnerSession {
  const { step, table } = ledger;
  const rewind = { from: version, to: ledger.version };
  const rewinds = isResumed ? [...ledger.rewinds, rewind] : ledger.rewinds;
  const tickets = new TicketSource(config, problems, { margin: 1, state: undefined, ids });
  const unacked = new UnackedGroups();
  const account = new TokenAccount(ledger.usage);
  const changes = new Changes();
  const start = { step, version, rewinds, ...(table && { table }) };
  const admission = new Admission<ArrivedGroup>(limits, start);
  const budget = ticketBound(limits.maxStepsOffPolicy, limits.groupsPerBatch);
  const issuedBelow = isResumed ? admission.table.nextOrder + ticketsSoFar + budget : 0;
  const receiver = new GroupReceiver({
    admission,
    tickets,
    unacked,
    account,
    changes,
    confirmLead: () => Promise.resolve(),
    isResumed,
    issuedBelow,
    audit: { isQuarantined: () => false, refused: () => Promise.resolve() },
    groupStats: new GroupStats(),
    noSignal: new NoSignalWatch(0),
    brokenPolicy: new BrokenPolicyWatch({
      groupsPerBatch: 1,
      firstVersion: 0,
      log: silent,
      isBroken: () => Promise.resolve(true),
    }),
    onUnanswered: () => undefined,
    vocabSize: 10,
    zeroVariance: 'refill',
    certificates: new Certificates(),
    versionAudit: { consider: () => Promise.resolve() },
    selection: { solved: () => Promise.resolve() },
    newestVersion: () => admission.publishedVersion,
    log: silent,
  });
  const delivered = new Set<number>();
  return { admission, tickets, unacked, account, receiver, changes, delivered, deathsHeard: 0 };
}
