import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';
import { objectsIn } from '../support/kubernetes.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';
import { fateOf, type Job } from '../support/workloads.js';

const place = TrainingPlace.shared();

/** Each test derives from the manifest how Kubernetes reacts to the exit code of a real learner. */
describe('a learner that runs as a Job', { timeout: 480_000 }, async () => {
  const text = await readFile(join(packageRoot, 'deploy/k8s/base/learner.yaml'), 'utf8');
  const [manifest] = objectsIn(text);
  const job = manifest as unknown as Job;
  const { env } = job.spec.template.spec.containers[0]!;
  const valueOf = (name: string) => env!.find((variable) => variable.name === name)!.value!;
  const ofJob = { 'stopped-exit-code': valueOf('LEARNER_STOPPED_EXIT_CODE') };

  it('a stopped learner Job is replaced, resumes and completes, and a further start completes at once', async () => {
    await using ground = await TrainingGround.at(place(), 'job');
    ground.actor('actor-0');
    const settings = { ...ofJob, 'max-steps': 5, 'checkpoint-every-steps': 1 };
    const first = ground.learner(settings);
    const rest = gate(); // for the second learner
    await ground.startScoring({
      isCorrect: (_rollout, index) => index % 2 === 0,
      before: (order) => (order < 3 * 4 ? Promise.resolve() : rest.opened),
    });
    await first.says(({ msg, step }) => msg === 'step trained' && Number(step) >= 2);
    assert.equal(fateOf(job, (await first.stop('SIGTERM'))!), 'replaced for free', first.tail);

    rest.open();
    const second = ground.learner(settings);
    assert.equal(fateOf(job, (await second.exitCode())!), 'complete', second.tail);
    const steps = (await ground.metrics()).map(({ step }) => step);
    assert.deepEqual(
      steps,
      Array.from({ length: 5 }, (_, i) => i + 1),
    );

    const third = ground.learner(settings);
    assert.equal(fateOf(job, (await third.exitCode())!), 'complete', third.tail);
    assert(!third.log.some(({ msg }) => msg === 'step trained'));
  });

  it('a learner Job that is stopped in its last evaluation is replaced, and the next one makes the evaluation', async () => {
    await using ground = await TrainingGround.at(place(), 'job-evaluates');
    const actor = ground.actor('actor-0');
    const settings = { ...ofJob, 'max-steps': 2, 'checkpoint-every-steps': 1 };
    const trains = ground.learner(settings);
    await ground.startScoring();
    assert.equal(fateOf(job, (await trains.exitCode())!), 'complete', trains.tail);
    await actor.stop('SIGTERM');

    const evaluating = { ...settings, 'eval-problems': 4, 'eval-samples': 1 };
    const stopped = ground.learner(evaluating);
    await until(async () => (await ground.broker.backlog()).consumers['tickets.eval'].pending > 0);
    assert.equal(fateOf(job, (await stopped.stop('SIGTERM'))!), 'replaced for free', stopped.tail);

    ground.actor('actor-1');
    const last = ground.learner(evaluating);
    assert.equal(fateOf(job, (await last.exitCode())!), 'complete', last.tail);
    assert.deepEqual(
      (await ground.evals()).map(({ lost }) => lost),
      [0],
    );
  });

  it('a learner Job that waits for NATS is alive, and is replaced if it is stopped', async () => {
    await using ground = await TrainingGround.prepare('job-waits');
    await ground.server.stop();
    const patience = valueOf('LEARNER_START_PATIENCE_SECONDS');
    const learner = ground.learner({ ...ofJob, 'start-patience-seconds': patience });
    await learner.says(({ msg }) => msg === 'waiting for NATS');
    assert.equal((await learner.ask('/healthz')).status, 200);
    const { status, body } = await learner.ask('/readyz');
    assert.equal(status, 503);
    assert.match(body, /connecting to NATS/);
    assert.equal(fateOf(job, (await learner.stop('SIGTERM'))!), 'replaced for free', learner.tail);
    await ground.server.resume();
  });

  it('a diverged learner fails the Job', async () => {
    await using ground = await TrainingGround.at(place(), 'job-diverges');
    ground.actor('actor-0');
    const learner = ground.learner({
      ...ofJob,
      'max-steps': 60,
      'learning-rate': 3,
      'stop-kl': 0.05,
      'stop-patience': 2,
      'sample-lag': 1, // every step sees the effect of the previous one at any speed of the actor
    });
    await ground.startScoring();
    const code = (await learner.exitCode())!;
    assert.equal(fateOf(job, code), 'failed', `${code} ${learner.tail}`);
    assert.match(learner.errors, /diverged/);
  });

  it('a learner fails the Job if its configuration is wrong or no server answers within its waiting time', async () => {
    await using ground = await TrainingGround.prepare('job-refused');
    const wrong = ground.learner({ ...ofJob, 'groups-per-batch': 0 });
    assert.equal(fateOf(job, (await wrong.exitCode())!), 'failed', wrong.tail);

    const file = join(ground.model.path, 'config.json');
    const nowhere = ground.learner({ ...ofJob, 'run-dir': file });
    assert.equal(fateOf(job, (await nowhere.exitCode())!), 'failed', nowhere.tail);
    assert.equal(await nowhere.exitCode(), 2);
    assert.match(
      nowhere.errors,
      /config\.json is not a folder that can be written \(.*\); name another with --run-dir\n$/,
    );

    const impatient = { ...ofJob, 'start-patience-seconds': 0 };
    await ground.backend.stop('SIGTERM');
    const withoutBackend = ground.learner(impatient);
    assert.equal(fateOf(job, (await withoutBackend.exitCode())!), 'failed', withoutBackend.tail);
    assert.match(withoutBackend.errors, /no Tinker server/);
    await ground.server.stop();
    const withoutNats = ground.learner(impatient);
    assert.equal(fateOf(job, (await withoutNats.exitCode())!), 'failed', withoutNats.tail);
    assert.match(withoutNats.errors, /no NATS server answers/);
    await ground.server.resume();
  });
});
