import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { loadDataset, type Dataset } from '../../shared/countdown/dataset.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../shared/wire/run-config.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { publishedAdapter } from '../actor/adapters.js';
import { ActorProcess } from '../support/actor-process.js';
import { brokerOn, silent, until } from '../support/broker.js';
import { runConfig, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { tinyModel } from '../support/tiny-model.js';

/** The learner's and the reward service's side of a run, as far as an actor sees them. */
interface Run extends AsyncDisposable {
  readonly name: string;
  readonly broker: Broker;
  readonly groups: RolloutGroup[]; // delivered so far
  issue(named: Partial<Ticket>): Promise<void>;
  publish(version: number): Promise<void>;
  actor(name: string, environment?: Record<string, string>): ActorProcess;
}

describe('an actor process', { timeout: 120_000 }, () => {
  let server: NatsServer;
  let model: ModelDirectory & AsyncDisposable;
  let dataset: Dataset;
  let runs = 0;

  before(async () => {
    server = await NatsServer.start();
    model = await tinyModel(1, { maxPositions: 512 });
    dataset = await loadDataset(runConfig().dataset);
  });
  after(async () => {
    await server[Symbol.asyncDispose]();
    await model[Symbol.asyncDispose]();
  });

  async function startRun(named: Partial<RunConfig> = {}): Promise<Run> {
    const name = `run-${runs++}`;
    const stop = new AbortController();
    const { signal } = stop;
    const ackWaitMs = { 'tickets.train': 2_000 }; // a killed actor's ticket returns after this
    const broker = await brokerOn(server, { run: name, signal, ackWaitMs });
    await broker.ensureRun({ trainTickets: 64, evalTickets: 64 });
    const agreed = { run: name, model: { name: 'tiny', digest: model.digest } };
    await broker.config.put(runConfig({ ...agreed, datasetDigest: dataset.digest, ...named }));
    const groups: RolloutGroup[] = [];
    const collecting = consume(
      broker,
      'rollouts',
      RolloutGroup,
      { signal, log: silent, stage: 'test', concurrency: 1 },
      ({ value }) => {
        groups.push(value);
        return Promise.resolve();
      },
    );
    let tickets = 0;
    return {
      name,
      broker,
      groups,
      issue: async (fields) => {
        const order = tickets++;
        const problemId = dataset.train[order % dataset.train.length]!.id;
        const issued = ticket({ ticketId: `t-${order}`, order, problemId, ...fields });
        const subject = broker.names.subjects.tickets(issued.split);
        await broker.publish(subject, Ticket, issued, { msgId: issued.ticketId, signal });
      },
      publish: async (version) => {
        const samplerPath = `tinker://run/sampler_weights/v${version}`;
        const update = { version, samplerPath, smallestUsefulVersion: 0 };
        await broker.policy.publish(update, publishedAdapter(version, model.config));
      },
      actor: (actor, environment) => {
        const where = ['--nats-url', server.url, '--run', name, '--model-dir', model.path];
        return new ActorProcess([...where, '--name', actor], environment);
      },
      [Symbol.asyncDispose]: async () => {
        stop.abort();
        await collecting;
        await broker[Symbol.asyncDispose]();
      },
    };
  }

  /** Resolves once the actor has leased a ticket and waits for a policy that is new enough. */
  const holdsTicket = (actor: ActorProcess) =>
    until(async () => (await actor.metric('rl_actor_idle_seconds_total{cause="policy"}')) > 0);

  it('delivers the group of each ticket and tells how it is', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using actor = run.actor('first');
    await until(async () => (await actor.ask('/readyz')).status === 200);
    for (let seed = 0; seed < 3; seed++) {
      await run.issue({ samplingParams: { temperature: 1, maxTokens: 16, seed } });
    }
    const held = dataset.test[0]!;
    await run.issue({ split: 'eval', problemId: held.id, groupSize: 1 });
    await until(() => run.groups.length === 4);

    const tokenizer = await loadTokenizer(model);
    for (const { actor: name, ticket: of, promptTokens, rollouts } of run.groups) {
      const problem = dataset.problem(of.problemId)!;
      const prompt = `${problem.numbers.join(' ')}=${problem.target}:`;
      assert.equal(name, 'first');
      assert.equal(tokenizer.decode(promptTokens), prompt);
      assert.equal(rollouts.length, of.groupSize);
      for (const { tokens, versions, stopReason } of rollouts) {
        assert.deepEqual(versions, [[0, tokens.length]]);
        const ended = tokenizer.eosTokenIds.includes(tokens.at(-1)!);
        assert.equal(stopReason, ended ? 'stop' : 'length');
      }
    }
    assert.deepEqual(new Set(run.groups.map(({ ticket: of }) => of.ticketId)).size, 4);
    await until(async () => (await run.broker.depths()).tickets === 0);
    assert.equal(await actor.metric('rl_actor_rollouts_total{split="train"}'), 6);
    assert.equal(await actor.metric('rl_actor_policy_version'), 0);
    const tokens = run.groups.filter(({ ticket: of }) => of.split === 'train');
    assert.equal(
      await actor.metric('rl_actor_tokens_total{split="train"}'),
      tokens.flatMap(({ rollouts }) => rollouts).reduce((sum, of) => sum + of.tokens.length, 0),
    );
    await until(async () => (await run.broker.actors.list()).some(({ groups }) => groups === 4));
    assert.equal(await actor.stop('SIGTERM'), 0);
  });

  it('samples the same group again for the same seed, policy and problem', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using _actor = run.actor('one');
    const problemId = dataset.train[0]!.id;
    await run.issue({ problemId });
    await run.issue({ problemId });
    await until(() => run.groups.length === 2);
    assert.deepEqual(run.groups[0]!.rollouts, run.groups[1]!.rollouts);
  });

  it('adopts new versions between two tokens of a group', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using _actor = run.actor('one');
    const samplingParams = { temperature: 1, maxTokens: 400, seed: 1 };
    const hasMixed = () =>
      run.groups.some(({ rollouts }) => rollouts.some(({ versions }) => versions.length > 1));
    // Versions come all the time, so that sooner or later one falls into a group.
    for (let version = 1, issued = 0; !hasMixed(); version++) {
      for (; issued < run.groups.length + 2; issued++) {
        await run.issue({ groupSize: 64, samplingParams });
      }
      await run.publish(version);
    }
  });

  it('samples with the version that a ticket is pinned to, whatever the newest is', async () => {
    await using run = await startRun();
    await run.publish(0);
    await run.publish(1);
    await using _actor = run.actor('one');
    await run.issue({}); // shows that the newest is in use
    await until(() => run.groups.length === 1);
    const samplingParams = { temperature: 0, maxTokens: 16, seed: 1 };
    const problemId = dataset.test[0]!.id;
    const evaluated = { split: 'eval', problemId, groupSize: 1, samplingParams } as const;
    await run.issue({ ...evaluated, issuedAtVersion: 1, pinnedVersion: 0 });
    await run.issue({ ...evaluated, issuedAtVersion: 1, pinnedVersion: 1 });
    await until(() => run.groups.length === 3);
    const byOrder = run.groups.toSorted((a, b) => a.ticket.order - b.ticket.order);
    const versions = byOrder.map(({ rollouts }) => rollouts[0]!.versions.map(([v]) => v));
    assert.deepEqual(versions, [[1], [0], [1]]);
  });

  it('samples a ticket only when it holds a policy that is new enough', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using actor = run.actor('one');
    await run.issue({ issuedAtVersion: 2 });
    await holdsTicket(actor);
    await run.publish(1);
    await run.publish(2);
    await until(() => run.groups.length === 1);
    for (const { versions } of run.groups[0]!.rollouts) assert.equal(versions[0]![0], 2);
  });

  it('leaves its ticket to another when it is killed', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using killed = run.actor('killed');
    await run.issue({ issuedAtVersion: 1 });
    await holdsTicket(killed);
    await killed.stop('SIGKILL');
    await using _heir = run.actor('heir');
    await run.publish(1);
    await until(() => run.groups.length === 1);
    assert.equal(run.groups[0]!.actor, 'heir');
    await until(async () => (await run.broker.depths()).tickets === 0);
  });

  it('gives its ticket back and ends well when it is told to stop', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using stopped = run.actor('stopped');
    await run.issue({ issuedAtVersion: 1 });
    await holdsTicket(stopped);
    assert.equal(await stopped.stop('SIGTERM'), 0);
    assert.equal((await run.broker.depths()).tickets, 1);
    await using _heir = run.actor('heir');
    await run.publish(1);
    await until(() => run.groups.length === 1);
    assert.equal(run.groups[0]!.actor, 'heir');
  });

  it('puts a ticket aside that asks for a problem which is not there', async () => {
    await using run = await startRun();
    await run.publish(0);
    await using _actor = run.actor('one');
    await run.issue({ problemId: 'nowhere' });
    await run.issue({});
    await until(() => run.groups.length === 1);
    await until(async () => (await run.broker.depths()).tickets === 0);
    assert.equal((await run.broker.depths()).dead, 1);
  });

  it('refuses to start with another model than the run trains', async () => {
    await using run = await startRun({ model: { name: 'tiny', digest: 'f'.repeat(64) } });
    await using actor = run.actor('one');
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, new RegExp(`digest f{64}.*--model-dir.*${model.digest}`));
  });

  it('refuses to start with another dataset than the run is trained on', async () => {
    await using run = await startRun({ datasetDigest: 'e'.repeat(64) });
    await using actor = run.actor('one');
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, new RegExp(`digest e{64}.*${dataset.digest}`));
  });

  it('refuses a policy whose weights are not handed out', async () => {
    await using run = await startRun();
    const samplerPath = 'tinker://run/sampler_weights/v0';
    await run.broker.policy.publish({ version: 0, samplerPath, smallestUsefulVersion: 0 });
    await using actor = run.actor('one');
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, /version 0 comes without its adapter.*--sampler tinker/);
  });

  it('ends with a clear message when its decoder dies, and loses no ticket', async () => {
    await using run = await startRun();
    await run.publish(0);
    await run.issue({ issuedAtVersion: 1 });
    const crash = `import { isMainThread } from 'node:worker_threads';
      if (!isMainThread) setTimeout(() => process.exit(3), 2_000);`;
    const preload = `--import=data:text/javascript,${encodeURIComponent(crash)}`;
    await using actor = run.actor('one', { NODE_OPTIONS: preload });
    assert.equal(await actor.exitCode(), 1);
    const crashed = actor.log.find(({ msg }) => msg === 'crashed');
    assert.match(JSON.stringify(crashed), /decoder ended unexpectedly, with code 3/);
    assert.equal((await run.broker.depths()).tickets, 1);
  });
});

describe('an actor that cannot start', { timeout: 60_000 }, () => {
  it('names every setting that is wrong', async () => {
    await using actor = new ActorProcess(['--threads', '0', '--sampler', 'gpu']);
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, /--run[^]*--sampler[^]*--threads/);
  });

  it('names the server that does not answer', async () => {
    await using actor = new ActorProcess(['--run', 'r', '--nats-url', 'nats://127.0.0.1:9']);
    assert.equal(await actor.exitCode(), 2);
    assert.match(actor.errors, /nats:\/\/127\.0\.0\.1:9.*--nats-url/);
  });
});
