import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { nanos } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { brokerOn } from '../support/broker.js';
import { NatsServer } from '../support/nats-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/waiting.js';

const limits = { trainTickets: 4, evalTickets: 2 };

describe('the history that a run keeps in NATS', { timeout: 180_000 }, () => {
  let server: NatsServer;
  let broker: Broker;
  let stopping: AbortController;
  before(async () => {
    server = await NatsServer.start();
  });
  after(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    stopping = new AbortController();
    broker = await brokerOn(server);
    await broker.ensureRun(limits);
  });
  afterEach(async () => {
    stopping.abort();
    await broker.deleteRun();
    await broker[Symbol.asyncDispose]();
  });
  it('the event log replays the history from the beginning and continues live', async () => {
    const event = (version: number): RunEvent => ({ v: 1, at: version, kind: 'version', version });
    await broker.events.emit(event(1));
    await broker.events.emit(event(2));
    const seen: number[] = [];
    const reading = (async () => {
      for await (const { at } of broker.events.read(stopping.signal)) seen.push(at);
    })();
    await until(() => seen.length === 2);
    const past: number[] = [];
    for await (const { at } of broker.events.past(stopping.signal)) past.push(at);
    assert.deepEqual(past, [1, 2]);
    await broker.events.emit(event(3));
    await until(() => seen.length === 3);
    assert.deepEqual(seen, [1, 2, 3]);
    stopping.abort();
    await reading;
  });

  it('the event log finds the newest events of a kind, however many others are between and after them', async () => {
    const { events } = broker;
    const newest = async (count: number) =>
      (await events.latest('step', count, stopping.signal)).map(({ step }) => step);
    const held: RunEvent = {
      ...{ v: 1, at: 0, kind: 'held', split: 'train', tickets: 1, withdrawn: 0 },
      ...{ longestSeconds: 60, limitSeconds: 300 },
    };
    const emit = (event: RunEvent, times: number) =>
      Promise.all(Array.from({ length: times }, () => events.emit(event)));
    assert.deepEqual(await newest(3), []);
    await emit(held, 20);
    assert.deepEqual(await newest(3), []);
    for (const step of [1, 2, 3, 4, 5]) {
      await events.emit({ v: 1, at: step, kind: 'step', step, version: step, metrics: {} });
      await emit(held, 20);
    }
    assert.deepEqual(await newest(1), [5]);
    assert.deepEqual(await newest(3), [3, 4, 5]);
    assert.deepEqual(await newest(9), [1, 2, 3, 4, 5]);
  });

  it('the event log refuses events of a leader that was replaced', async () => {
    await using old = await brokerOn(server);
    const quick = { renewEveryMs: 100, expiresMs: 1_000 };
    const event = (version: number): RunEvent => ({ v: 1, at: version, kind: 'version', version });
    const lost = await old.lead('a', limits, stopping.signal, { ...quick, renewEveryMs: 60_000 });
    await old.events.emit(event(1));
    await using _led = await broker.lead('b', limits, stopping.signal, quick);
    await assert.rejects(old.events.emit(event(2)), /another one leads/);
    await broker.events.emit(event(3));
    await assert.rejects(old.events.emit(event(4)), /another one leads/);
    const kinds: unknown[] = [];
    for await (const { kind, at } of broker.events.past(stopping.signal)) {
      kinds.push(kind === 'leader' ? kind : at);
    }
    assert.deepEqual(kinds, ['leader', 1, 'leader', 3]);
    await lost[Symbol.asyncDispose]();
  });

  it('the event log stores an event once if its answer was lost, and then the next events', async () => {
    const event = (version: number): RunEvent => ({ v: 1, at: version, kind: 'version', version });
    const { jsm, names } = broker.link;
    // So that the server has forgotten the id when the event is sent again.
    await jsm.streams.update(names.streams.events, { duplicate_window: nanos(100) });
    let isCut = false;
    await using proxy = await TcpProxy.before(server.port, () => (bytes) => {
      if (isCut || !bytes.includes('events.version')) return bytes;
      isCut = true;
      setImmediate(() => {
        proxy.down(); // the server has the event, but its answer is lost
      });
      return bytes;
    });
    const natsUrl = `nats://127.0.0.1:${proxy.port}`;
    await using learner = await brokerOn(server, { natsUrl });
    const newest = async () => (await jsm.streams.info(names.streams.events)).state.last_seq;
    const emitted = learner.events.emit(event(1));
    await until(async () => isCut && (await newest()) === 1);
    await until(async () => {
      const { state } = await jsm.streams.info(names.streams.events);
      return Date.now() - Date.parse(state.last_ts) > 1_000;
    });
    proxy.up();
    await emitted;
    await learner.events.emit(event(2));
    const past: number[] = [];
    for await (const { at } of broker.events.past(stopping.signal)) past.push(at);
    assert.deepEqual(past, [1, 2]);
  });
});
