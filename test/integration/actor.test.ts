import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { prepareGround, type Ground } from '../support/actor-run.js';
import type { ServiceProcess } from '../support/service-process.js';
import { until } from '../support/waiting.js';

async function temporaryFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'offbeat-actor-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

describe('an actor process', { timeout: 480_000 }, () => {
  let ground: Ground;

  before(async () => {
    ground = await prepareGround();
  });
  after(() => ground[Symbol.asyncDispose]());

  /** Resolves once the actor has leased a ticket and waits for a policy that is new enough. */
  const holdsTicket = (actor: ServiceProcess) =>
    until(async () => (await actor.metric('rl_actor_idle_seconds_total{cause="policy"}')) > 0);

  it('an actor delivers the group of each ticket and reports its state', async () => {
    await using run = await ground.startRun();
    await using actor = run.actor('first');
    await until(async () => /for the first policy/.test((await actor.ask('/readyz')).body));
    await run.publish(0);
    await until(async () => (await actor.ask('/readyz')).status === 200);
    for (let seed = 0; seed < 3; seed++) {
      await run.issue({ samplingParams: { temperature: 1, maxTokens: 16, seed } });
    }
    const held = ground.dataset.test[0]!;
    await run.issue({ split: 'eval', problemId: held.id, groupSize: 1 });
    await until(() => run.groups.length === 4);

    const tokenizer = await loadTokenizer(ground.model);
    for (const { actor: name, ticket: of, promptTokens, rollouts } of run.groups) {
      const prompt = `${of.problemId.replaceAll(',', ' ')}:`; // 3,7,21=64 is asked as 3 7 21=64:
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

  it('an actor samples the same group for the same seed, policy and problem', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using _actor = run.actor('one');
    const problemId = ground.dataset.train[0]!.id;
    await run.issue({ problemId });
    await run.issue({ problemId });
    await until(() => run.groups.length === 2);
    assert.deepEqual(run.groups[0]!.rollouts, run.groups[1]!.rollouts);
  });

  it('an actor hands its tickets back and ends when its decoder hangs', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using folder = await temporaryFolder();
    const pipe = join(folder.path, 'hang');
    const hanging = new URL('../support/hanging-decoder.js', import.meta.url).href;
    await using hung = run.actor('hung', {
      ...{ NODE_OPTIONS: `--import=${hanging}`, HANG_AT: pipe, ACTOR_STALL_SECONDS: '5' },
    });
    await run.issue({});
    await until(() => run.groups.length === 1);
    execFileSync('mkfifo', [pipe]);
    await run.issue({});
    await hung.says(({ msg }) => msg === 'message failed');
    await hung.says(({ msg }) => msg === 'crashed');
    await using _other = run.actor('other');
    await until(() => run.groups.length === 2);
    assert.equal(run.groups[1]!.actor, 'other');
    assert.equal(await hung.exitCode(), null); // a thread that hangs in this way can only be killed
    assert.match(
      hung.tail,
      /the actor's decoder hangs: no token for \d+ s, not counting waits for a processor, with 1 groups/,
    );
  });

  it('an actor adopts new versions between two tokens of a group', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using _actor = run.actor('one');
    const samplingParams = { temperature: 1, maxTokens: 400, seed: 1 };
    const hasMixed = () =>
      run.groups.some(({ rollouts }) => rollouts.some(({ versions }) => versions.length > 1));
    // Versions are published continuously, so one eventually arrives during a group.
    for (let version = 1, issued = 0; !hasMixed(); version++) {
      for (; issued < run.groups.length + 2; issued++) {
        await run.issue({ groupSize: 64, samplingParams });
      }
      await run.publish(version);
    }
  });

  it('an actor abandons a group that is too old between two tokens, and reports it to the learner', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using actor = run.actor('one');
    const samplingParams = { temperature: 1, maxTokens: 400, seed: 1 };
    const given = async () => run.groups.length + (await run.broker.depths()).dead;
    // Each version makes samples of the previous one useless; one eventually arrives during a group.
    for (let version = 1, issued = 0; (await run.broker.depths()).dead === 0; version++) {
      for (; issued < (await given()) + 2; issued++) {
        await run.issue({ groupSize: 64, samplingParams });
      }
      await run.publish(version, { smallestUsefulVersion: version });
    }
    const stop = new AbortController();
    for await (const letter of run.broker.deadLetters.read(stop.signal)) {
      const { stage, reason, cause } = letter;
      assert.equal(stage, 'actor');
      assert.deepEqual(cause, { kind: 'outdated' }, reason);
      const { ticketId } = ticketOf(letter)!;
      assert(!run.groups.some(({ ticket: of }) => of.ticketId === ticketId));
      break;
    }
    assert((await actor.metric('rl_tokens_wasted_total{reason="stale"}')) > 0);
    await until(async () => (await run.broker.depths()).tickets === 0); // it continues with the others
  });

  it('an actor never samples a ticket that already has an outcome', async () => {
    await using run = await ground.startRun();
    await run.publish(0, { consumedBelow: 2 });
    await run.issue({}); // orders 0 and 1
    await run.issue({});
    await run.issue({});
    await using actor = run.actor('one');
    await until(() => run.groups.length === 1);
    await until(async () => (await run.broker.depths()).tickets === 0);
    assert.equal(run.groups[0]!.ticket.order, 2);
    const dropped = 'rl_groups_dropped_total{stage="actor",reason="duplicate"}';
    assert.equal(await actor.metric(dropped), 2);
    assert.equal((await run.broker.depths()).dead, 0);
  });

  it('an actor samples with the version that a ticket is pinned to, not with the newest', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await run.publish(1);
    await using _actor = run.actor('one');
    await run.issue({}); // shows that the newest is in use
    await until(() => run.groups.length === 1);
    const samplingParams = { temperature: 0, maxTokens: 16, seed: 1 };
    const problemId = ground.dataset.test[0]!.id;
    const evaluated = { split: 'eval', problemId, groupSize: 1, samplingParams } as const;
    await run.issue({ ...evaluated, issuedAtVersion: 1, pinnedVersion: 0 });
    await run.issue({ ...evaluated, issuedAtVersion: 1, pinnedVersion: 1 });
    await until(() => run.groups.length === 3);
    const byOrder = run.groups.toSorted((a, b) => a.ticket.order - b.ticket.order);
    const versions = byOrder.map(({ rollouts }) => rollouts[0]!.versions.map(([v]) => v));
    assert.deepEqual(versions, [[1], [0], [1]]);
  });

  it('an actor with --splits eval takes only tickets of evaluations', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using _actor = run.actor('one', { ACTOR_SPLITS: 'eval' });
    await run.issue({});
    const problemId = ground.dataset.test[0]!.id;
    for (let i = 0; i < 3; i++) await run.issue({ split: 'eval', problemId, pinnedVersion: 0 });
    await until(() => run.groups.length === 3);
    assert(run.groups.every(({ ticket: of }) => of.split === 'eval'));
    await until(async () => (await run.broker.depths()).tickets === 1);
  });

  it('an actor samples a ticket only once its policy is new enough', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using actor = run.actor('one');
    await run.issue({ issuedAtVersion: 2 });
    await holdsTicket(actor);
    await run.publish(1);
    await run.publish(2);
    await until(() => run.groups.length === 1);
    for (const { versions } of run.groups[0]!.rollouts) assert.equal(versions[0]![0], 2);
  });

  it('the ticket of a killed actor goes to another', async () => {
    await using run = await ground.startRun();
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

  it('an actor that is asked to stop hands its ticket back and ends cleanly', async () => {
    await using run = await ground.startRun();
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

  it('an actor that is stopped in the middle of a group ends cleanly, and the ticket stays', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using actor = run.actor('one');
    const samplingParams = { temperature: 1, maxTokens: 400, seed: 1 };
    for (let i = 0; i < 20; i++) await run.issue({ groupSize: 512, samplingParams });
    await until(async () => (await actor.metric('rl_actor_inflight')) > 0);
    assert.equal(await actor.stop('SIGTERM'), 0);
    const { tickets } = await run.broker.depths();
    assert(tickets > 0);
    await until(() => run.groups.length === 20 - tickets);
  });

  it('an actor dead-letters a ticket for an unknown problem', async () => {
    await using run = await ground.startRun();
    await run.publish(0);
    await using _actor = run.actor('one');
    await run.issue({ problemId: 'nowhere' });
    await run.issue({});
    await until(() => run.groups.length === 1);
    await until(async () => (await run.broker.depths()).tickets === 0);
    assert.equal((await run.broker.depths()).dead, 1);
  });
});
