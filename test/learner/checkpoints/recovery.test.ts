import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { withRecovery } from '../../../learner/checkpoints/recovery.js';
import { BadRequest } from '../../../shared/tinker/errors.js';
import { silent } from '../../support/broker.js';
import { apiKey, startOn, tinyModel } from '../local-backend/running-backend.js';

/** Ends a session with what the backend says when it lacks what it was asked for. */
async function refusedWhile(leads: boolean): Promise<unknown> {
  await using model = await tinyModel(1);
  await using backend = await startOn(model.path);
  const replaced = new AbortController();
  const never = new AbortController().signal;
  const session = withRecovery(
    {
      backendUrl: backend.url,
      apiKey,
      startPatienceSeconds: 10,
      log: silent,
      stop: never,
      signal: never,
      leadership: {
        signal: replaced.signal,
        confirm: () => {
          if (!leads) replaced.abort(new Error('another learner leads run r now'));
          return leads ? Promise.resolve() : Promise.reject(new Error('replaced'));
        },
      },
      progress: () => Promise.resolve(undefined),
    },
    () => Promise.reject(new BadRequest({ operation: 'o', url: 'u', detail: 'not found' })),
  );
  return await session.catch((caught: unknown) => caught);
}

describe('a learner that the backend refuses something', () => {
  it('says so to the user while it leads', async () => {
    const caught = await refusedWhile(true);
    assert.match(String(caught), /UserError: the backend refused what training asked of it/);
  });

  it('says that another one leads where that is so, since it may wait for its turn again', async () => {
    const caught = await refusedWhile(false);
    assert.equal(String(caught), 'Error: another learner leads run r now');
  });
});
