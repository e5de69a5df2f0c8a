import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { freePort } from '../../cli/processes/free-port.js';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { PermanentError } from '../../shared/base/errors.js';
import { startSpan, startTracing, traceIdOf } from '../../shared/service/telemetry/tracing.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { ServiceProcess } from '../support/service-process.js';
import { TraceCollector, type CollectedSpan } from '../support/trace-collector.js';
import { TrainingGround } from '../support/training-ground.js';
import { never, until } from '../support/waiting.js';

describe(
  'the trace of a ticket, through a training of real processes',
  { timeout: 240_000 },
  () => {
    const run = 'traced';
    let collector: TraceCollector;
    let ground: TrainingGround;

    before(async () => {
      collector = await TraceCollector.start();
      process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = collector.url; // inherited by every process
      ground = await TrainingGround.prepare(run);
      const actor = ground.actor('actor-0');
      const model = ['--model-dir', ground.model.path, '--name', 'reward-0'];
      const place = ['--nats-url', ground.server.url, '--run', run];
      await using reward = new ServiceProcess('reward-service', [...place, ...model]);
      // A random model earns nothing, so no group has variance.
      const learner = ground.learner({ 'max-steps': 3, 'zero-variance': 'train' });
      assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
      await Promise.all([actor.stop('SIGTERM'), reward.stop('SIGTERM')]);
    });
    after(async () => {
      delete process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
      await ground[Symbol.asyncDispose]();
      await collector[Symbol.asyncDispose]();
    });

    /** The four spans of each trained group, by name. */
    const trained = () =>
      collector.spans
        .filter(({ name }) => name === 'train')
        .map(({ traceId }) => {
          const spans = collector.spans.filter((span) => span.traceId === traceId);
          const of = (name: string): CollectedSpan => {
            const [span, ...more] = spans.filter((each) => each.name === name);
            assert(span !== undefined && more.length === 0, `${name} in ${JSON.stringify(spans)}`);
            return span;
          };
          return {
            ticket: of('ticket'),
            sample: of('sample'),
            score: of('score'),
            train: of('train'),
          };
        });

    it('a trace joins ticket, sample, score and train, each the parent of the next', () => {
      const traces = trained();
      assert.equal(traces.length, 3 * 4); // steps of groups
      for (const { ticket: issued, sample, score, train } of traces) {
        assert.deepEqual(
          [issued.parent, sample.parent, score.parent, train.parent],
          [undefined, issued.spanId, sample.spanId, score.spanId],
        );
        assert.deepEqual(
          [issued.service, sample.service, score.service, train.service],
          ['learner', 'actor', 'reward-service', 'learner'],
        );
      }
    });

    it('a trace has the ticket, the versions and the staleness', () => {
      for (const { ticket: issued, sample, score, train } of trained()) {
        const ticketId = String(issued.attributes['offbeat.ticket_id']);
        assert.match(ticketId, /^train-/);
        assert.equal(train.traceId, traceIdOf({ run, ticketId }));
        for (const { attributes } of [sample, score, train]) {
          assert.equal(attributes['offbeat.ticket_id'], ticketId);
          assert.equal(attributes['offbeat.attempt'], 0);
        }
        const oldest = Number(sample.attributes['offbeat.version.oldest']);
        assert.equal(sample.attributes['offbeat.actor'], 'actor-0');
        assert.equal(score.attributes['offbeat.scorer'], 'reward-0');
        assert.equal(
          train.attributes['offbeat.staleness'],
          Number(train.attributes['offbeat.version']) - oldest,
        );
        assert(sample.startedAt <= sample.endedAt && sample.endedAt <= train.endedAt);
      }
    });
  },
);

describe('a trace', { timeout: 60_000 }, () => {
  let server: NatsServer;
  let broker: Broker;
  before(async () => {
    server = await NatsServer.start();
    broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
  });
  after(async () => {
    await broker[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  const trace = `00-${'a1'.repeat(16)}-${'b2'.repeat(8)}-01`;
  const send = (ticketId: string, of?: string) => {
    const options = { msgId: ticketId, trace: of, signal: never };
    return broker.publish(
      broker.names.subjects.tickets('train'),
      Ticket,
      ticket({ ticketId }),
      options,
    );
  };
  /** The first `count` deliveries, each handled by the function. */
  const deliveries = async (count: number, handle: (nth: number) => void) => {
    const stop = new AbortController();
    const seen: { trace: string | undefined; deliveryCount: number }[] = [];
    const options = { signal: stop.signal, log: silent, stage: 'actor', concurrency: 1 };
    await consume(broker, 'tickets.train', Ticket, options, ({ trace: of, deliveryCount }) => {
      seen.push({ trace: of, deliveryCount });
      if (seen.length === count) stop.abort();
      handle(seen.length);
      return Promise.resolve();
    });
    return seen;
  };

  it('a redelivered message keeps its trace', async () => {
    await send('again', trace);
    const seen = await deliveries(2, (nth) => {
      if (nth === 1) throw new Error('try again');
    });
    assert.deepEqual(seen, [
      { trace, deliveryCount: 1 },
      { trace, deliveryCount: 2 },
    ]);
  });

  it('a dead letter keeps its trace when it is replayed', async () => {
    await send('dead', trace);
    await deliveries(1, () => {
      throw new PermanentError('no good');
    });
    await until(async () => (await broker.depths()).dead === 1);
    const letter = await broker.deadLetters.newest(never);
    assert.equal(letter?.trace, trace);
    await broker.deadLetters.replay(letter, never);
    assert.deepEqual(await deliveries(1, () => undefined), [{ trace, deliveryCount: 1 }]);
  });

  it('tracing that is off adds nothing to a message', async () => {
    const { seq } = await send('plain');
    const stored = await broker.link.jsm.streams.getMessage(broker.names.streams.tickets, { seq });
    assert.deepEqual([...stored.header.keys()], ['Nats-Msg-Id']);
    assert.deepEqual(await deliveries(1, () => undefined), [
      { trace: undefined, deliveryCount: 1 },
    ]);
  });
});

describe('spans', { timeout: 60_000 }, () => {
  const owner = { run: 'test', ticketId: 't-0' };

  it('spans are not created if no collector is named', async () => {
    await using _off = await startTracing('test', {}, silent);
    const described = { count: 0 };
    const span = startSpan('ticket', () => {
      described.count += 1;
      return { ticket: owner };
    });
    assert.deepEqual([span, described.count], [undefined, 0]);
  });

  it('spans of another attempt, and spans without a parent, belong to the same trace', async () => {
    await using collector = await TraceCollector.start();
    process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = collector.url;
    const tracing = await startTracing('test', process.env, silent);
    delete process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
    startSpan('ticket', () => ({ ticket: owner }))?.end();
    startSpan('ticket', () => ({ ticket: owner, attributes: { 'offbeat.attempt': 1 } }))?.end();
    startSpan('sample', () => ({ ticket: owner, parent: 'not a traceparent' }))?.end();
    startSpan('ticket', () => ({ ticket: { ...owner, ticketId: 't-1' } }))?.end();
    await tracing[Symbol.asyncDispose]();
    const traces = collector.spans.map(({ traceId }) => traceId);
    const mine = traceIdOf(owner);
    assert.deepEqual(traces, [mine, mine, mine, traceIdOf({ ...owner, ticketId: 't-1' })]);
    assert(collector.spans.every(({ parent }) => parent === undefined));
    assert.equal(
      startSpan('ticket', () => ({ ticket: owner })),
      undefined,
    );
  });

  it('a service ends although the collector is unreachable', async () => {
    process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = `http://127.0.0.1:${await freePort()}`;
    const tracing = await startTracing('test', process.env, silent);
    delete process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
    const span = startSpan('ticket', () => ({ ticket: owner }));
    assert.match(span?.traceparent ?? '', /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    span?.end();
    await tracing[Symbol.asyncDispose]();
  });
});
