import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import {
  type RecoveryOptions,
  type Session,
  withRecovery,
} from '../../../learner/checkpoints/recovery.js';
import { StepDamaged } from '../../../learner/step/damage.js';
import { BadRequest, RunLost } from '../../../shared/tinker/errors.js';
import type { Checkpoint } from '../../../shared/wire/ledger.js';
import { gate, silent, until } from '../../support/broker.js';
import { RecordingProxy } from '../../support/recording-proxy.js';
import { apiKey, modelName, startOn, tinyModel } from '../../local-backend/running-backend.js';

const failure = { operation: 'o', url: 'u', detail: 'not found' };
const adam = {
  ...{ learningRate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8 },
  ...{ weightDecay: 0, gradClipNorm: 0 },
};
const never = new AbortController().signal;

/** Runs sessions with a backend of their own, as the learner that leads, without pauses. */
async function recovering<Result>(
  session: Session<Result>,
  over: Partial<RecoveryOptions> = {},
): Promise<Result> {
  await using model = await tinyModel(1);
  await using backend = await startOn(model.path);
  return await withRecovery(
    {
      backendUrl: backend.url,
      apiKey,
      startPatienceSeconds: 10,
      log: silent,
      stop: never,
      signal: never,
      leadership: { signal: never, confirm: () => Promise.resolve() },
      progress: () => Promise.resolve(undefined),
      pause: () => Promise.resolve(),
      ...over,
    },
    session,
  );
}

/** Ends a session with what the backend says when it lacks what it was asked for. */
async function refusedWhile(leads: boolean): Promise<unknown> {
  const replaced = new AbortController();
  const leadership = {
    signal: replaced.signal,
    confirm: () => {
      if (!leads) replaced.abort(new Error('another learner leads run r now'));
      return leads ? Promise.resolve() : Promise.reject(new Error('replaced'));
    },
  };
  const refused = () => Promise.reject(new BadRequest(failure));
  return await recovering(refused, { leadership }).catch((caught: unknown) => caught);
}

describe('a learner that the backend refuses something', () => {
  it('says so to the user while it leads', async () => {
    const caught = await refusedWhile(true);
    assert.match(String(caught), /UserError: the backend refused a training request/);
  });

  it('says that another one leads where that is so, since it may wait for its turn again', async () => {
    const caught = await refusedWhile(false);
    assert.equal(String(caught), 'Error: another learner leads run r now');
  });
});

describe('a session that fails', () => {
  it('ends its calls of a backend that hangs, and settles its writes before the next one begins', async () => {
    const order: string[] = [];
    const release = gate();
    const log = pino({}, { write: (line) => order.push(messageOf(line)) });
    let sessions = 0;
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path);
    await using proxy = await RecordingProxy.before(backend.url);
    proxy.hold('optim_step');

    const recovered = recovering(
      async (client, work) => {
        if (++sessions === 2) {
          order.push('second session');
          return;
        }
        const run = await client.createLoraModel({ baseModel: modelName, rank: 4 });
        const write = async () => {
          await run.optimStep(adam).catch(() => order.push('call ended'));
          await release.opened;
          order.push('first write');
          await work.watch(setImmediate().then(() => order.push('second write')));
        };
        void work.watch(write());
        await until(() => proxy.operations.includes('optim_step'));
        throw new RunLost(failure);
      },
      { backendUrl: proxy.url, log, pause: () => Promise.resolve(void order.push('pause')) },
    );
    await until(() => order.includes('call ended'));
    await setImmediate();
    release.open();
    await recovered;
    const told = [failedMessage, 'call ended', 'first write', 'second write', 'pause'];
    assert.deepEqual(
      order.filter((entry) => told.includes(entry) || entry === 'second session'),
      [...told, 'second session'],
    );
  });

  it('is judged by its first failure, which ends the call that it waits for', async () => {
    let sessions = 0;
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path);
    await using proxy = await RecordingProxy.before(backend.url);
    proxy.hold('optim_step');
    const result = await recovering(
      async (client, work) => {
        if (++sessions === 2) return 'recovered';
        const run = await client.createLoraModel({ baseModel: modelName, rank: 4 });
        const step = run.optimStep(adam);
        await until(() => proxy.operations.includes('optim_step'));
        work.watch(Promise.reject(new RunLost(failure))).catch(() => undefined);
        await step;
        return 'went on without a connection';
      },
      { backendUrl: proxy.url },
    );
    assert.equal(result, 'recovered');
  });
});

describe('a learner whose steps are damaged by lies', () => {
  it('pauses longer after each that brought no checkpoint, and goes on as long as it takes', async () => {
    const pauses: number[] = [];
    const steps = [0, 0, 0, 0, 0, 0, 0, 0, 7]; // of the newest checkpoint, as each session ends
    const result = await recovering(
      () => {
        if (pauses.length === steps.length) return Promise.resolve('done');
        return Promise.reject(new StepDamaged(8, ['liar']));
      },
      {
        progress: () => Promise.resolve({ step: steps[pauses.length] } as Checkpoint),
        pause: (ms) => Promise.resolve(void pauses.push(ms / 1_000)),
      },
    );
    assert.equal(result, 'done');
    assert.deepEqual(pauses, [1, 2, 4, 8, 16, 30, 30, 30, 1]);
  });
});

const failedMessage = 'session failed, waiting for its tasks to settle';

function messageOf(line: string): string {
  return (JSON.parse(line) as { readonly msg: string }).msg;
}
