import assert from 'node:assert/strict';
import { cp, readdir, readFile, rename, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const limits = { timeout: 600_000 }; // for all of them, on a busy machine
const place = TrainingPlace.shared();
const flags = { 'checkpoint-every-steps': 2 };

describe('a run whose ledger was damaged while everything was down', limits, () => {
  it('a run resumes at its step when the end of the ledger file is cut off', async () => {
    await using ground = await TrainingGround.at(place(), 'cut');
    const { step, lines } = await trainAndKill(ground);
    await damage(ground, 'ledger', 0.9);
    await goesOn(ground, step, lines);
  });

  it('a run resumes at its step when the ledger lacks one byte and its index', async () => {
    await using ground = await TrainingGround.at(place(), 'byte');
    const { step, lines } = await trainAndKill(ground);
    await rm(join(ground.runDir, 'checkpoint.json'));
    await damage(ground, 'ledger', 'byte');
    await goesOn(ground, step, lines);
  });

  it('a run resumes at its step when the ledger and the folder of the run are gone', async () => {
    await using ground = await TrainingGround.at(place(), 'gone');
    const { step, key } = await trainAndKill(ground);
    await rm(ground.runDir, { recursive: true });
    await damage(ground, 'ledger', 0);
    await goesOn(ground, step, []);
    // Otherwise the outstanding tickets would have ids that no learner of the run has issued.
    assert.deepEqual((await ground.broker.ledger.ticketIds())?.key, key);
  });

  it('a run resumes from the copy in its folder when NATS has lost every checkpoint', async () => {
    await using ground = await TrainingGround.at(place(), 'folder');
    const { step, lines } = await trainAndKill(ground);
    await damage(ground, 'ledger', 0);
    await damage(ground, 'events', 0);
    await goesOn(ground, step, lines);
  });

  it('a run resumes from the copy in its folder when a power failure reset NATS to an earlier state', async () => {
    await using ground = await TrainingGround.at(place(), 'power');
    const { server, broker } = ground;
    const first = ground.learner(flags);
    const actor = ground.actor('actor-0');
    const copied = gate();
    await ground.startScoring({
      isCorrect: (_rollout, index) => index % 2 === 0,
      before: (order) => (order < 3 * 4 ? Promise.resolve() : copied.opened),
    });
    await first.says(({ msg, step }) => msg === 'checkpoint written' && step === 2);
    const earlier = `${server.storeFolder}.earlier`;
    await server.stop('SIGKILL');
    await cp(server.storeFolder, earlier, { recursive: true });
    await server.resume();
    copied.open();
    await first.says(({ msg, step }) => msg === 'checkpoint written' && step === 6);
    await Promise.all([first.stop('SIGKILL'), actor.stop('SIGKILL'), server.stop('SIGKILL')]);
    const file = JSON.parse(await readFile(join(ground.runDir, 'checkpoint.json'), 'utf8')) as {
      checkpoint: { step: number };
    };
    await server.forget();
    await rename(earlier, server.storeFolder);
    await server.resume();
    await until(() => broker.isConnected);
    assert.equal((await broker.ledger.read())?.step, 2);
    ground.actor('actor-1');
    await goesOn(ground, file.checkpoint.step, []);
  });

  it('a run without any checkpoint left is neither restarted nor changed', async () => {
    await using ground = await TrainingGround.at(place(), 'nothing');
    await trainAndKill(ground);
    await damage(ground, 'ledger', 0);
    await damage(ground, 'events', 0);
    await rm(join(ground.runDir, 'checkpoint.json'));
    const before = await readFile(join(ground.runDir, 'metrics.jsonl'), 'utf8');
    const again = ground.learner(flags);
    assert.equal(await again.exitCode(), 2, again.errors + again.tail);
    assert.match(again.errors, /run nothing has been trained, and no checkpoint .* restored/);
    assert.match(again.errors, /policy_nothing: policy versions up to \d+/);
    assert.equal(await readFile(join(ground.runDir, 'metrics.jsonl'), 'utf8'), before);
    assert.equal(await ground.broker.ledger.read(), undefined);
  });

  it('a run is not restarted at a server that has nothing of it', async () => {
    await using ground = await TrainingGround.at(place(), 'elsewhere');
    await trainAndKill(ground);
    const before = await readFile(join(ground.runDir, 'metrics.jsonl'), 'utf8');
    await ground.broker.deleteRun();
    const again = ground.learner({ ...flags, 'learning-rate': 0.5 });
    assert.equal(await again.exitCode(), 2, again.errors + again.tail);
    assert.match(again.errors, /NATS holds nothing of run elsewhere, which has been trained:/);
    assert.equal(await readFile(join(ground.runDir, 'metrics.jsonl'), 'utf8'), before);
    const config = await readFile(join(ground.runDir, 'config.json'), 'utf8');
    assert.match(config, /"learningRate": 0.02/);
  });
});

/** Trains 5 steps, then ends the learner. @returns its checkpoint's step and the lines of metrics.jsonl. */
async function trainAndKill(ground: TrainingGround) {
  const first = ground.learner(flags);
  ground.actor('actor-0');
  const killed = gate();
  await ground.startScoring({
    isCorrect: (_rollout, index) => index % 2 === 0,
    before: (order) => (order < 5 * 4 ? Promise.resolve() : killed.opened),
  });
  await first.says(({ msg, step }) => msg === 'checkpoint written' && step === 4);
  await until(async () => (await ground.metrics()).length === 5);
  await first.stop('SIGKILL');
  killed.open();
  const key = (await ground.broker.ledger.ticketIds())!.key;
  return { step: 4, lines: await ground.metrics(), key };
}

/** Truncates the newest file of a stream to a share, or removes its last byte and the file's index. */
async function damage(
  { server, broker }: TrainingGround,
  what: 'ledger' | 'events',
  left: number | 'byte',
): Promise<void> {
  const { buckets, streams } = broker.names;
  const stream = what === 'ledger' ? `KV_${buckets.ledger}` : streams.events;
  await server.stop('SIGKILL');
  const folder = join(server.streamFolder(stream), 'msgs');
  const files = await readdir(folder);
  for (const name of files.filter((file) => file.endsWith('.blk'))) {
    const file = join(folder, name);
    const { size } = await stat(file);
    await truncate(file, left === 'byte' ? size - 1 : Math.floor(size * left));
  }
  if (left === 'byte' || left === 0) {
    for (const name of files.filter((file) => !file.endsWith('.blk'))) await rm(join(folder, name));
  }
  await server.resume();
  await until(() => broker.isConnected);
}

/** Asserts that the learner resumes from that step and that the metrics have each step once, earlier ones unchanged. */
async function goesOn(
  ground: TrainingGround,
  from: number,
  before: readonly Record<string, number>[],
): Promise<void> {
  const goal = from + 2;
  const second = ground.learner({ ...flags, 'max-steps': goal });
  const resuming = await second.says(({ msg }) => msg === 'resuming from the last checkpoint');
  assert.equal(resuming['step'], from);
  assert.equal(await second.exitCode(), 0, second.errors + second.tail);
  const metrics = await ground.metrics();
  assert.deepEqual(
    metrics.map(({ step }) => step),
    Array.from({ length: goal }, (_, i) => i + 1),
  );
  if (before.length > 0) {
    const undone = await readFile(join(ground.runDir, 'metrics.undone.jsonl'), 'utf8');
    assert.deepEqual(JSON.parse(undone), before.at(-1)); // step 5, which was repeated
  }
  const kept = before.filter(({ step }) => step! <= from);
  assert.deepEqual(metrics.slice(0, kept.length), kept);
  assert.equal((await ground.broker.ledger.read())?.step, goal);
}
