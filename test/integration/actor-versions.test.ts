import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Activity } from '../../actor/activity.js';
import { CanaryCheck } from '../../actor/canary-check.js';
import { EarlyCancel } from '../../actor/early-cancel.js';
import { GroupLimit } from '../../actor/group-limit.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { sampleTickets } from '../../actor/sample-tickets.js';
import type { PolicyChoice, Progress, Sampler } from '../../actor/sampler/sampler.js';
import { TaskScope, unlessAborted } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import { openTask } from '../../shared/tasks/registry.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { runConfig, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { gate, never, until } from '../support/waiting.js';

/** A group that the sampler of a test is drawing. */
interface Drawing {
  readonly policy: PolicyChoice;
  readonly progress: Progress | undefined;
  readonly end: () => void;
}

describe('the versions of an actor that samples one group at a time', { timeout: 120_000 }, () => {
  let server: NatsServer;
  const brokers: Broker[] = [];
  before(async () => {
    server = await NatsServer.start();
  });
  after(async () => {
    for (const broker of brokers) await broker[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  /** An actor of a run of its own, whose groups end when the test says so. */
  async function start(run: string, scope: TaskScope, over: Partial<Sampler> = {}, actor = 'a') {
    const broker = await brokerOn(server, { run });
    brokers.push(broker);
    await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
    const drawings: Drawing[] = [];
    const dropped: number[] = [];
    const nothing = () => Promise.resolve();
    const sampler: Sampler = {
      ...{ kind: 'vllm', engine: 'test', usualArithmetic: 'fp32', limit: new GroupLimit(1) },
      ...{ maxContext: undefined, maxVersions: 2, trouble: undefined, servers: [] },
      ...{ load: nothing, admit: () => undefined, ready: nothing, guard: nothing },
      drop: (version) => void dropped.push(version),
      sample: async ({ count }, policy, signal, progress) => {
        const { opened, open } = gate();
        drawings.push({ policy, progress, end: open });
        progress?.onDraw(policy.version);
        await unlessAborted(opened, signal);
        return Array.from({ length: count }, () => ({
          ...{ tokens: Int32Array.of(1), behaviorLogprobs: Float32Array.of(-1) },
          ...{ versions: [[policy.version, 1]], stopReason: 'stop' },
        }));
      },
      [Symbol.asyncDispose]: nothing,
    };
    Object.defineProperties(sampler, Object.getOwnPropertyDescriptors(over));
    const task = openTask(runConfig().task);
    const dataset = await task.load();
    const encode = () => Int32Array.of(1, 2);
    const canaries = new CanaryCheck(sampler, 'fp32');
    const { policy: store } = broker;
    const following = { store, sampler, canaries, log: silent, retryDelayMs: 1 };
    const policies = new PolicyFollower(following);
    scope.start((ending) => policies.follow(ending));
    const noTime = () => undefined;
    scope.start((ending) =>
      sampleTickets(
        {
          ...{ broker, actor, sampler, policies, canaries, log: silent, onGroup: noTime },
          prompts: {
            ...{ task, dataset, maxContext: undefined },
            tokenizer: { encode, chatText: () => '', beginning: [], eosTokenIds: [0] },
          },
          activity: new Activity(() => 0, noTime),
          earlyCancel: new EarlyCancel('newest'),
          ...{ inFlightUpdates: true, splits: ['train', 'eval'] },
        },
        ending,
      ),
    );
    const announce = (version: number) => {
      const samplerPath = `tinker://run/sampler_weights/v${version}`;
      return broker.policy.publish({ version, samplerPath, smallestUsefulVersion: 0 });
    };
    return {
      ...{ drawings, dropped, policies },
      announce,
      /** Publishes a version, and waits until the actor has loaded it. */
      publish: async (version: number) => {
        await announce(version);
        await until(() => policies.version === version);
      },
      issue: (order: number, over: Partial<Ticket> = {}) => {
        const { id: problemId } = dataset.train[order]!;
        const issued = ticket({ ticketId: `t-${order}`, order, problemId, ...over });
        return broker.tickets.publish(issued, { signal: never });
      },
      isTaken: async (split: 'train' | 'eval') => {
        const state = await broker.tickets.poll(split);
        return state!.tickets.every(({ isTaken }) => isTaken);
      },
    };
  }

  it('a ticket that was asked for before the engine failed is given back, and not tried', async () => {
    await using scope = new TaskScope();
    let asked = 0;
    const { publish, issue, drawings, isTaken } = await start('outage', scope, {
      get trouble() {
        asked++;
        return 'no engine answers';
      },
    });
    await publish(0);
    await issue(0);
    await until(() => asked > 0);
    // A ticket that is given back without a delay would be here again within one of these requests.
    for (let request = 0; request < 20; request++) assert(await isTaken('train'));
    assert.deepEqual([drawings.length, asked], [0, 1]);
  });

  it('a ticket that waits for a version which its actor cannot load is sampled by another actor', async () => {
    await using scope = new TaskScope();
    const failing = await start('unloadable', scope, {
      load: ({ version }) =>
        version === 0 ? Promise.resolve() : Promise.reject(new Error('no space left')),
    });
    await failing.publish(0);
    await failing.issue(0, { issuedAtVersion: 1 });
    await until(() => failing.isTaken('train'));
    const other = await start('unloadable', scope, {}, 'b');
    await other.publish(1);
    await until(() => other.drawings.length === 1);
    assert(failing.policies.isStuck);
    other.drawings[0]!.end();
  });

  it('a ticket that was asked for before its actor could not load a version is given back, and not tried', async () => {
    await using scope = new TaskScope();
    let loads = 0;
    const { publish, announce, issue, drawings, isTaken, policies } = await start('asked', scope, {
      load: () => (++loads === 1 ? Promise.resolve() : Promise.reject(new Error('no space left'))),
    });
    await publish(0);
    await announce(1);
    await until(() => policies.isStuck);
    await issue(0);
    await until(() => isTaken('train'));
    for (let request = 0; request < 20; request++) assert(await isTaken('train'));
    assert.equal(drawings.length, 0);
  });

  it('no ticket is leased before the first version is loaded', async () => {
    await using scope = new TaskScope();
    const { publish, issue, isTaken, drawings } = await start('first', scope);
    await issue(0);
    for (let request = 0; request < 20; request++) assert(!(await isTaken('train')));
    await publish(0);
    await until(() => drawings.length === 1);
    drawings[0]!.end();
  });

  it('a ticket that waits for its turn begins with the version that is then the newest', async () => {
    await using scope = new TaskScope();
    const { publish, issue, isTaken, drawings } = await start('turns', scope);
    await publish(0);
    await issue(0, { split: 'eval', pinnedVersion: 0 });
    await until(() => drawings.length === 1);
    await issue(1);
    await until(() => isTaken('train'));
    await publish(1);
    drawings[0]!.end();
    await until(() => drawings.length === 2);
    assert.deepEqual(
      drawings.map(({ policy }) => policy.version),
      [0, 1],
    );
    drawings[1]!.end();
  });

  it('a group that goes on with a newer version leaves the room of its first to others', async () => {
    await using scope = new TaskScope();
    const { publish, issue, drawings, dropped } = await start('room', scope);
    await publish(0);
    await issue(0);
    await until(() => drawings.length === 1);
    await publish(1);
    drawings[0]!.progress!.onDraw(0);
    await publish(2);
    assert.equal(dropped.includes(0), false); // the group may still ask for it
    drawings[0]!.progress!.onDraw(2);
    await publish(3);
    assert.equal(dropped.includes(0), true, String(dropped));
    drawings[0]!.end();
  });
});
