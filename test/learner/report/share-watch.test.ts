import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { ShareWatch } from '../../../learner/report/run-watch.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { silent } from '../../support/log.js';
import { gate } from '../../support/waiting.js';

it('a share watch completes its report before its disposal resolves', async () => {
  const answer = gate();
  const emitted: string[] = [];
  const broker = {
    fullShares: async () => {
      await answer.opened;
      return [{ stream: 'uploads' as const, sender: 'actor-0', messages: 3 }];
    },
    events: {
      emit: async (event: RunEvent) => {
        await setImmediate();
        emitted.push(event.kind);
      },
    },
  };
  const watch = new ShareWatch(
    broker as unknown as ConstructorParameters<typeof ShareWatch>[0],
    silent,
  );
  void watch.poll();
  const disposed = watch[Symbol.asyncDispose]().then(() => emitted.push('disposed'));
  await setImmediate();
  answer.open();
  await disposed;
  assert.deepEqual(emitted, ['share', 'disposed']);
});
