/**
 * One process of `npm run bench -- plane`. The learner issues, receives and settles, the reward service consumes and forwards,
 * and actors follow versions, sample tickets and publish, with the code of the product. Only sampling, judging and training take no
 * time, and a checkpoint is not written.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Activity } from '../../actor/activity.js';
import { CanaryCheck } from '../../actor/canary-check.js';
import { EarlyCancel } from '../../actor/early-cancel.js';
import { GroupLimit } from '../../actor/group-limit.js';
import { leaseOf, renewLease } from '../../actor/lease.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { sampleTickets } from '../../actor/sample-tickets.js';
import type { Progress, Sampler } from '../../actor/sampler/sampler.js';
import { Certificates } from '../../learner/audit/certificates.js';
import { TokenAccount } from '../../learner/cost/token-account.js';
import { Admission } from '../../learner/groups/admission.js';
import type { ArrivedGroup } from '../../learner/groups/check-scored-group.js';
import { GroupReceiver } from '../../learner/groups/group-receiver.js';
import { GroupStats } from '../../learner/groups/group-stats.js';
import { UnackedGroups } from '../../learner/groups/unacked-groups.js';
import { SessionQueues } from '../../learner/session/queues.js';
import { NoSignalWatch } from '../../learner/stop/no-signal-watch.js';
import { HoldTimes } from '../../learner/tickets/hold-times.js';
import { TicketSource } from '../../learner/tickets/ticket-source.js';
import { scoreRollouts } from '../../reward-service/score-rollouts.js';
import { Changes } from '../../shared/base/changes.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { smallestUsefulVersion } from '../../shared/rl/staleness.js';
import { AdapterLoader } from '../../shared/run/adapters/adapter-loader.js';
import { AllowedSources } from '../../shared/run/adapters/allowed-sources.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { openTask } from '../../shared/tasks/registry.js';
import type { Rollout } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { TicketKey } from '../../shared/wire/ledger.js';
import { messageIdOf, TicketIds } from '../../shared/wire/ticket-ids.js';
import { silent } from '../support/log.js';
import { rolloutGroup, runConfig } from '../support/messages.js';
import { serveCalls } from './bench-process.js';

/** Settings of a run, as JSON on the command line of each of its processes. */
export interface Plane {
  readonly natsUrl: string;
  readonly run: string;
  readonly groupSize: number;
  readonly tokens: number; // of each rollout
  readonly groupsPerBatch: number;
  readonly bound: number; // maxStepsOffPolicy
  readonly concurrency: number; // groups in flight of each actor
  readonly sampleMs: number; // of each group
  readonly adapterBytes: number; // 0: versions come without an adapter
  readonly ticketKey: TicketKey;
  /** Groups that an earlier learner left in the queue, all of tickets after its last checkpoint. */
  readonly backlog: number;
}

export type Role = 'learner' | 'reward' | 'actor' | 'filler';

const vocabSize = 151_936;
const promptTokens = 64;
const scope = new TaskScope();

const [role, text, name] = process.argv.slice(2) as [Role, string, string];
const plane = JSON.parse(text) as Plane;
const config: RunConfig = runConfig({
  ...{ run: plane.run, groupSize: plane.groupSize, groupsPerBatch: plane.groupsPerBatch },
  maxStepsOffPolicy: plane.bound,
  sampling: { temperature: 1, maxTokens: plane.tokens },
});
const { signal } = scope;
const broker = await connectBroker({ ...plane, client: name, log: silent, signal });
const parts = { learner, reward, actor, filler };
await parts[role](broker);

async function learner(broker: Broker): Promise<void> {
  const { groupsPerBatch, bound, adapterBytes } = plane;
  const trainTickets = (bound + 1) * groupsPerBatch;
  await broker.ensureRun({ trainTickets, evalTickets: 1 });
  await new RunConfigStore(broker).put(config);
  const leaseSeconds = 30;
  const settings = { ticketDeadlineSeconds: undefined, ticketsAhead: undefined, leaseSeconds };
  const changes = new Changes();
  const unacked = new UnackedGroups();
  const tickets = await ticketSource();
  const limits = { ...config, maxSteps: Infinity };
  const admission = new Admission<ArrivedGroup>(limits, { step: 0, version: 0 });
  const no = () => Promise.resolve();
  const receiver = new GroupReceiver({
    ...{ admission, tickets, unacked, changes, vocabSize, zeroVariance: 'refill', log: silent },
    account: new TokenAccount(),
    audit: { isQuarantined: () => false, refused: no },
    versionAudit: { consider: no },
    selection: { solved: no },
    certificates: new Certificates(),
    confirmLead: no,
    newestVersion: () => admission.version,
    isResumed: plane.backlog > 0,
    issuedBelow: plane.backlog,
    groupStats: new GroupStats(),
    noSignal: new NoSignalWatch(0),
    brokenPolicy: { died: () => undefined, arrived: () => undefined },
    onUnanswered: () => undefined,
  });
  const holdTimes = new HoldTimes({ leaseSeconds });
  const queues = new SessionQueues(
    {
      ...{ broker, config, settings, log: silent, meter: { evaluated: () => undefined } },
      runWatch: { metrics: {}, live: [], leases: [] },
      leadership: { signal: scope.signal, confirm: no, [Symbol.asyncDispose]: no },
    },
    { receiver, tickets, unacked, holdTimes, admission, changes },
    scope,
  );
  const publish = async (version: number): Promise<void> => {
    const adapter = { bytes: randomBytes(adapterBytes), rank: 32, alpha: 64 };
    await broker.policy.publish(
      {
        version,
        samplerPath: `tinker://bench/v${version}`,
        samplingSessionId: `s-${version}`,
        smallestUsefulVersion: smallestUsefulVersion(version, bound, []),
        consumedBelow: admission.table.consumedBelow,
      },
      adapterBytes === 0 ? undefined : adapter,
    );
    admission.recordPublished(version);
    changes.notify();
    await broker.policy.retire(new Set([version]));
  };
  let trained = 0; // groups
  let publishing: Promise<void> | undefined;

  /** Publishes the newest version as soon as the one before is published; a run does the same. */
  const publishNewest = async (): Promise<void> => {
    while (admission.publishedVersion < admission.confirmedVersion) {
      await publish(admission.confirmedVersion);
    }
    publishing = undefined;
  };
  const train = async (): Promise<void> => {
    while (!signal.aborted) {
      const minibatch = admission.cut();
      if (minibatch === undefined) {
        await changes.next(signal);
        continue;
      }
      trained += minibatch.groups.length;
      if (!minibatch.isLastOfStep) continue;
      admission.confirmStep();
      changes.notify();
      publishing ??= publishNewest();
      // Every tenth step has a checkpoint in a run, too.
      if (admission.step % 10 !== 0) continue;
      await unacked.settle(unacked.covered((order) => admission.table.isConsumed(order)));
    }
  };
  serveCalls({
    publish,
    /** Issues tickets and receives groups; nothing is trained yet. */
    receive: async () => {
      await publish(0);
      queues.issueAndReceive(scope);
    },
    train: () => {
      scope.start(train);
      return Promise.resolve();
    },
    trained: () => Promise.resolve(trained),
    held: () => Promise.resolve(unacked.size),
  });
}

async function reward(broker: Broker): Promise<void> {
  const scores = Array.from({ length: plane.groupSize }, (_, i) => scoreOf(i));
  const judge = {
    scoreGroup: () => scores,
    task: () => openTask(config.task),
    problem: () => undefined,
  };
  const scorer = name;
  scope.start(() => scoreRollouts({ broker, judge, scorer, log: silent, signal }));
  serveCalls({ start: () => Promise.resolve() });
  await Promise.resolve();
}

async function actor(broker: Broker): Promise<void> {
  await new RunConfigStore(broker).wait(signal);
  const task = openTask(config.task);
  const dataset = await task.load();
  const firstTokens: number[] = []; // ms
  const allowed = new AllowedSources('', '--adapter-sources');
  const loader = new AdapterLoader({ store: broker.policy, allowed });
  const progresses = new Set<Progress>();
  const draw = (version: number, progress: Progress | undefined): void => {
    const before = policies.firstToken?.version;
    progress?.onDraw(version);
    const { firstToken } = policies;
    if (firstToken !== undefined && firstToken.version !== before) {
      firstTokens.push(1_000 * firstToken.seconds);
    }
  };
  const rollouts = Array.from({ length: plane.groupSize }, (_, i) => sampledRollout(i));
  const sampler: Sampler = {
    kind: plane.adapterBytes === 0 ? 'tinker' : 'onnx',
    engine: 'bench',
    usualArithmetic: 'fp32',
    limit: new GroupLimit(plane.concurrency),
    maxContext: undefined,
    maxVersions: undefined,
    trouble: undefined,
    servers: [],
    load: async (manifest, _prove, stop) => {
      if (plane.adapterBytes > 0) await loader.fetchAdapter(manifest, stop);
    },
    admit: (version) => {
      for (const progress of progresses) draw(version, progress);
    },
    drop: () => undefined,
    sample: async (_, { version }, stop, progress) => {
      draw(version, progress);
      if (progress !== undefined) progresses.add(progress);
      const ms = plane.sampleMs * (0.5 + Math.random()); // so that some group is always in progress
      if (ms > 0) await sleep(ms, undefined, { signal: stop });
      if (progress !== undefined) progresses.delete(progress);
      return rollouts.map((rollout) => ({ ...rollout, versions: [[version, plane.tokens]] }));
    },
    ready: () => Promise.resolve(),
    guard: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const earlyCancel = new EarlyCancel();
  const canaries = new CanaryCheck(sampler, 'fp32');
  const policies = new PolicyFollower({
    ...{ store: broker.policy, sampler, canaries, log: silent },
    onPublished: (manifest) => {
      earlyCancel.published(manifest);
    },
  });
  const activity = new Activity(
    () => performance.now(),
    () => undefined,
  );
  const prompt = Int32Array.from({ length: promptTokens }, (_, i) => i);
  const prompts = {
    ...{ task, dataset, maxContext: undefined },
    tokenizer: { encode: () => prompt, chatText: () => '', beginning: [], eosTokenIds: [0] },
  };
  let groups = 0;
  const lease = () =>
    leaseOf({ actor: name, sampler, policies, activity, groups, abandoned: {} }, Date.now());
  scope.start((ending) => policies.follow(ending));
  scope.start((ending) => renewLease(broker.actors, lease, silent, ending));
  serveCalls({
    start: () => {
      const sampling = {
        ...{ broker, actor: name, prompts, sampler, policies, canaries, activity, earlyCancel },
        ...{ inFlightUpdates: true, splits: ['train'] as const, log: silent },
        onGroup: () => groups++,
      };
      scope.start((ending) => sampleTickets(sampling, ending));
      return Promise.resolve();
    },
    version: () => Promise.resolve(policies.version ?? -1),
    firstTokens: () => Promise.resolve(firstTokens.splice(0)),
  });
}

/** Stores the scored groups of the run's first tickets, as a learner without a checkpoint leaves them behind when it crashes. */
async function filler(broker: Broker): Promise<void> {
  const { groupSize, tokens } = plane;
  const rollouts = Array.from({ length: groupSize }, (_, i): Rollout => {
    return { ...sampledRollout(i), versions: [[0, tokens]] };
  });
  const tickets = await ticketSource();
  const scores = Array.from({ length: groupSize }, (_, i) => scoreOf(i));
  let next = 0;
  const send = async (): Promise<void> => {
    while (next < plane.backlog) {
      const ticket = tickets.ticketAt(next++, 0, 0);
      const group = rolloutGroup({ ticket, rollouts });
      const scored: ScoredGroup = { v: 1, group, scores, scorer: name, scoredAt: 0 };
      const sending = { msgId: messageIdOf(ticket), signal };
      await broker.publish(broker.names.subjects.scored('train'), ScoredGroup, scored, sending);
    }
  };
  serveCalls({ fill: () => Promise.all(Array.from({ length: 32 }, send)) });
}

async function ticketSource(): Promise<TicketSource> {
  const { train } = await openTask(config.task).load();
  const ids = new TicketIds(plane.ticketKey);
  const past = { margin: 0, state: undefined, ids };
  return new TicketSource(
    config,
    train.map(({ id }) => id),
    past,
  );
}

/** Rollouts of a group begin with different tokens, which the learner's check of the claimed logprobs makes use of. */
function sampledRollout(i: number): Omit<Rollout, 'versions'> {
  const tokens = Int32Array.from({ length: plane.tokens }, (_, t) => (i + t * 7_919) % vocabSize);
  const behaviorLogprobs = Float32Array.from(tokens, (_, t) =>
    t === 0 ? -2 * Math.log(plane.groupSize) : -((t % 8) + 1) / 8,
  );
  return { tokens, behaviorLogprobs, stopReason: 'length' };
}

function scoreOf(i: number) {
  const isCorrect = i % 2 === 0;
  return {
    ...{ reward: isCorrect ? 1 : 0, exactReward: isCorrect ? '1' : '0' },
    ...{ hasFormat: true, isValid: true, isCorrect, reason: isCorrect ? 'correct' : 'wrong_value' },
  };
}
