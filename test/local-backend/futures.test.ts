import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { PermanentError } from '../../shared/base/errors.js';
import { ApiError } from '../../local-backend/http-api.js';
import { FutureStore, type SettledFutures } from '../../local-backend/futures.js';
import { never } from '../support/waiting.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const status = (expected: number) => (error: unknown) =>
  error instanceof ApiError && error.status === expected;

describe('the futures', () => {
  it('futures return the result of an operation on every poll', async () => {
    const futures = new FutureStore<string>();
    const id = futures.add(Promise.resolve('done'));
    for (let poll = 0; poll < 2; poll++) {
      assert.deepEqual(await futures.wait(id, 1000, never), { isOk: true, value: 'done' });
    }
  });

  it('futures report whether the client or the server caused a failure', async () => {
    const futures = new FutureStore<string>();
    const wrong = futures.add(Promise.reject(new PermanentError('wrong request')));
    const broken = futures.add(Promise.reject(new Error('broken server')));
    assert.deepEqual(await futures.wait(wrong, 1000, never), {
      isOk: false,
      error: 'wrong request',
      category: 'user',
    });
    assert.deepEqual(await futures.wait(broken, 1000, never), {
      isOk: false,
      error: 'broken server',
      category: 'server',
    });
  });

  it('futures return undefined when the operation outlasts the poll', async () => {
    const futures = new FutureStore<string>();
    const id = futures.add(new Promise(() => undefined));
    assert.equal(await futures.wait(id, 1, never), undefined);
  });

  it('futures complete a poll as soon as the result is available', async () => {
    const futures = new FutureStore<string>();
    let finish = (_value: string): void => undefined;
    const id = futures.add(new Promise((resolve) => (finish = resolve)));
    const poll = futures.wait(id, 3_600_000, never);
    finish('now');
    assert.deepEqual(await poll, { isOk: true, value: 'now' });
  });

  it('futures end a poll when its client disconnects', async () => {
    const futures = new FutureStore<string>();
    const client = new AbortController();
    const id = futures.add(new Promise(() => undefined));
    const poll = futures.wait(id, 3_600_000, client.signal);
    client.abort();
    assert.equal(await poll, undefined);
  });

  it('futures drop a result some time after its first fetch, and answer 410', async () => {
    let now = 0;
    const futures = new FutureStore<string>(
      { keepFetchedMs: 100, keepUnfetchedMs: 1000 },
      () => now,
    );
    const id = futures.add(Promise.resolve('done'));
    await futures.wait(id, 0, never);
    now = 99;
    assert.ok(await futures.wait(id, 0, never));
    now = 100;
    await assert.rejects(futures.wait(id, 0, never), status(410));
  });

  it('futures drop a result that is never fetched', async () => {
    let now = 0;
    const futures = new FutureStore<string>(
      { keepFetchedMs: 100, keepUnfetchedMs: 1000 },
      () => now,
    );
    const id = futures.add(Promise.resolve('done'));
    await new Promise(setImmediate);
    now = 1000;
    await assert.rejects(futures.wait(id, 0, never), status(410));
  });

  describe('with a limit of bytes', () => {
    const bytesOf = (text: string) => text.length;
    const owned = { owner: 'client' };
    const big = 'x'.repeat(10_000);
    const settled = async (futures: FutureStore<string>, ids: readonly string[]) => {
      await turn();
      return ids.map((id) => futures.has(id));
    };

    it('futures drop the oldest results of all owners, and answer 410 for them', async () => {
      const futures = new FutureStore<string>({ ownedBytes: 30_000, bytesOf });
      const add = (owner: string) => futures.add(Promise.resolve(big), { owner });
      const ids = ['a', 'b', 'a'].map(add);
      assert.deepEqual(await settled(futures, ids), [false, true, true]);
      await assert.rejects(futures.wait(ids[0]!, 0, never), status(410));
      futures.drop('b', [ids[1]!]); // makes room
      ids.push(add('b'));
      assert.deepEqual(await settled(futures, ids), [false, false, true, true]);
    });

    it('futures count 1 KiB for each result besides its own bytes', async () => {
      const futures = new FutureStore<string>({ ownedBytes: 30_000, bytesOf });
      const ids = Array.from({ length: 100 }, () => futures.add(Promise.resolve(''), owned));
      const failed = Array.from({ length: 9 }, () =>
        futures.add(Promise.reject(new Error(big)), owned),
      );
      assert.equal((await settled(futures, ids)).filter(Boolean).length, 0);
      assert.equal((await settled(futures, failed)).filter(Boolean).length, 1);
    });

    it('futures keep what the learner waits for, running operations, and the newest result even if it is too large', async () => {
      const futures = new FutureStore<string>({ ownedBytes: 5_000, bytesOf });
      let finish = (_value: string): void => undefined;
      const running = futures.add(new Promise((resolve) => (finish = resolve)), owned);
      const ids = [
        running,
        futures.add(Promise.resolve(big)),
        futures.add(Promise.resolve(big), owned),
      ];
      assert.deepEqual(await settled(futures, ids), [true, true, true]);
      finish('short');
      assert.deepEqual(await settled(futures, ids), [true, true, false]);
      assert.deepEqual(await futures.wait(running, 0, never), { isOk: true, value: 'short' });
    });

    it('futures that expire make room', async () => {
      let now = 0;
      const limits = { keepUnfetchedMs: 10_000, ownedBytes: 30_000, bytesOf };
      const futures = new FutureStore<string>(limits, () => now);
      const add = () => futures.add(Promise.resolve(big), owned);
      const [first, second] = [add(), add()];
      await turn();
      now = 20_000;
      const [third, fourth] = [add(), add()];
      const kept = await settled(futures, [first, second, third, fourth]);
      assert.deepEqual(kept, [false, false, true, true]);
    });
  });

  it('a request that is sent again finds its future until the result is dropped', async () => {
    const futures = new FutureStore<string>({ ownedBytes: 2_000 });
    const add = (resendKey: string) =>
      futures.add(Promise.resolve('done'), { owner: 'a', resendKey });
    const first = add('one');
    assert.equal(futures.idOf('one'), first);
    assert.equal(futures.idOf('two'), undefined);
    await turn();
    const second = add('two'); // of 1 KiB each, only one fits
    await turn();
    assert.deepEqual([futures.idOf('one'), futures.idOf('two')], [undefined, second]);
  });

  it('nothing of a request is kept once its result is dropped', async () => {
    const futures = new FutureStore<string>({ ownedBytes: 2_000 });
    const live = (): number => {
      collect();
      return process.memoryUsage().heapUsed;
    };
    const before = live();
    for (let i = 0; i < 300; i++) {
      const resendKey = `${i}${'x'.repeat(100_000)}`;
      futures.add(Promise.resolve('done'), { owner: 'a', resendKey });
      await turn();
    }
    assert(live() - before < 10_000_000); // the keys of all would be 30 MB
  });

  it('an expired result that is dropped later takes no newer future of the same request with it', async () => {
    let now = 0;
    const futures = new FutureStore<string>({ keepUnfetchedMs: 100 }, () => now);
    const add = () => futures.add(Promise.resolve('done'), { owner: 'a', resendKey: 'one' });
    add();
    await turn();
    now = 100; // expired, but dropped only by a later sweep
    assert.equal(futures.idOf('one'), undefined);
    const again = add();
    now = 10_000;
    futures.add(Promise.resolve('sweeps'));
    assert.equal(futures.idOf('one'), again);
  });

  it('futures answer 410 for an id of an earlier process and 404 for one that was never issued', async () => {
    const earlier = new FutureStore<string>().add(Promise.resolve('lost'));
    const futures = new FutureStore<string>();
    const mine = futures.add(Promise.resolve('done'));
    await assert.rejects(futures.wait(earlier, 0, never), status(410));
    await assert.rejects(futures.wait('nonsense', 0, never), status(404));
    await assert.rejects(futures.wait(mine.replace(/-0-/, '-1-'), 0, never), status(404));
  });
});

describe('the futures of an owner', () => {
  const okIds = ({ futures }: SettledFutures) => futures.map(({ id }) => id);

  it('futures of an owner are listed in the order in which they settled, after a cursor', async () => {
    const futures = new FutureStore<string>();
    const finish: ((value: string) => void)[] = [];
    const ids = [0, 1, 2].map((i) =>
      futures.add(new Promise<string>((resolve) => (finish[i] = resolve)), { owner: 'a' }),
    );
    futures.add(Promise.resolve('of another owner'), { owner: 'b' });
    futures.add(Promise.resolve('of no owner'));
    finish[1]!('first');
    const first = await futures.settledOf('a', 0, 3_600_000, never);
    assert.deepEqual(okIds(first), [ids[1]]);
    finish[2]!('second');
    finish[0]!('third');
    await turn();
    const rest = await futures.settledOf('a', first.cursor, 3_600_000, never);
    assert.deepEqual(okIds(rest), [ids[2], ids[0]]);
    assert.deepEqual(okIds(await futures.settledOf('a', 0, 0, never)), [ids[1], ids[2], ids[0]]);
    assert.deepEqual(okIds(await futures.settledOf('a', rest.cursor, 0, never)), []);
  });

  it('futures of an owner say which of them failed', async () => {
    const futures = new FutureStore<string>();
    const id = futures.add(Promise.reject(new Error('broken')), { owner: 'a' });
    const settled = await futures.settledOf('a', 0, 3_600_000, never);
    assert.deepEqual(settled.futures, [{ id, isOk: false }]);
  });

  it('a poll of an owner ends without futures when its client disconnects', async () => {
    const futures = new FutureStore<string>();
    const client = new AbortController();
    const poll = futures.settledOf('a', 7, 3_600_000, client.signal);
    client.abort();
    assert.deepEqual(await poll, { futures: [], cursor: 7 });
  });

  it('an owner drops the results that it has, but not those of others and none that it awaits', async () => {
    const futures = new FutureStore<string>();
    const done = futures.add(Promise.resolve('done'), { owner: 'a' });
    const running = futures.add(new Promise<string>(() => undefined), { owner: 'a' });
    const other = futures.add(Promise.resolve('done'), { owner: 'b' });
    await turn();
    futures.drop('a', [done, running, other, 'unknown']);
    assert.deepEqual(
      [done, running, other].map((id) => futures.has(id)),
      [false, true, true],
    );
    await assert.rejects(futures.wait(done, 0, never), status(410));
    assert.deepEqual(okIds(await futures.settledOf('a', 0, 0, never)), []);
  });

  it('a future without a way to cancel it refuses, and an expired one is left alone', async () => {
    let cancelled = 0;
    let now = 0;
    const futures = new FutureStore<string>(
      { keepFetchedMs: 100, keepUnfetchedMs: 100 },
      () => now,
    );
    const cancel = () => {
      cancelled++;
    };
    const can = futures.add(Promise.resolve('done'), { cancel });
    const cannot = futures.add(Promise.resolve('done'));
    futures.cancel(can);
    assert.equal(cancelled, 1);
    await turn();
    futures.cancel(can); // it has ended
    assert.equal(cancelled, 1);
    assert.throws(() => {
      futures.cancel(cannot);
    }, status(400));
    assert.throws(() => {
      futures.cancel('unknown');
    }, status(404));
    await turn();
    now = 100;
    futures.cancel(can);
    assert.equal(cancelled, 1);
  });
});
