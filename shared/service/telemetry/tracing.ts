import { createHash } from 'node:crypto';
import type { Tracer } from '@opentelemetry/api';
import { errorText } from '../../base/errors.js';
import { readableId } from '../../base/ticket-name.js';
import type { Environment } from '../config.js';
import type { Logger } from './logger.js';

/** The stages that the trace of a ticket is made of. */
export type SpanName = 'ticket' | 'sample' | 'score' | 'train';

export interface SpanStart {
  /** Of which all spans are one trace, also where a message came without its parent. */
  readonly ticket: { readonly run: string; readonly ticketId: string };
  /** `traceparent` of the span that led to this one, as its message brought it. */
  readonly parent?: string | undefined;
  readonly startedAt?: number | undefined; // ms since the epoch; now, if it is not told
  readonly attributes?: Readonly<Record<string, string | number>>;
}

/** A stage under way, to be ended once. */
export interface Span {
  /** What the next stage names as its parent: W3C Trace Context, version 00. */
  readonly traceparent: string;
  /** @param endedAt ms since the epoch; now, if it is not told. */
  end(endedAt?: number): void;
}

/** Header of a message that belongs to a trace. */
export const traceHeader = 'traceparent';

let start: ((name: SpanName, options: SpanStart) => Span) | undefined;

/** Begins a span; nothing where no traces are wanted, and then nothing is to be sent along either. */
export function startSpan(name: SpanName, options: () => SpanStart): Span | undefined {
  return start?.(name, options());
}

/** Of one export, retries included: the end of a service waits for the last one. */
const exportTimeoutMs = 3_000;

/**
 * Sends the spans of this process to the collector that OTEL_EXPORTER_OTLP_ENDPOINT (or
 * OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) names. Without these nothing is loaded and nothing recorded. The
 * other OTEL_ variables count as OpenTelemetry describes them, OTEL_TRACES_SAMPLER for instance.
 *
 * @returns what sends the last spans when it is disposed of, for a few seconds at most.
 */
export async function startTracing(
  service: string,
  env: Environment,
  log: Logger,
): Promise<AsyncDisposable> {
  const url = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] ?? env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  if (url === undefined || url === '' || env['OTEL_SDK_DISABLED'] === 'true') {
    return { [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const { ROOT_CONTEXT, trace } = await import('@opentelemetry/api');
  const { resourceFromAttributes } = await import('@opentelemetry/resources');
  const { BasicTracerProvider, BatchSpanProcessor, RandomIdGenerator } =
    await import('@opentelemetry/sdk-trace-base');
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http');

  const random = new RandomIdGenerator();
  let nextTraceId = ''; // of a span without a parent
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ 'service.namespace': 'offbeat', 'service.name': service }),
    idGenerator: {
      generateTraceId: () => nextTraceId,
      generateSpanId: () => random.generateSpanId(),
    },
    spanProcessors: [
      new BatchSpanProcessor(new OTLPTraceExporter({ timeoutMillis: exportTimeoutMs })),
    ],
  });
  const tracer: Tracer = provider.getTracer('offbeat');
  start = (name, { ticket, parent, startedAt, attributes }) => {
    nextTraceId = traceIdOf(ticket);
    const above = parent === undefined ? undefined : spanContext(parent);
    const context = above === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, above);
    const span = tracer.startSpan(
      name,
      {
        ...(startedAt !== undefined && { startTime: startedAt }),
        attributes: {
          'offbeat.run': ticket.run,
          'offbeat.ticket_id': readableId(ticket.ticketId),
          ...attributes,
        },
      },
      context,
    );
    const { traceId, spanId, traceFlags } = span.spanContext();
    return {
      traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`,
      end: (endedAt) => {
        span.end(endedAt);
      },
    };
  };
  return {
    async [Symbol.asyncDispose]() {
      start = undefined;
      try {
        await provider.shutdown();
      } catch (caught) {
        log.warn({ reason: errorText(caught) }, 'the last spans could not be sent');
      }
    },
  };
}

/** The same for every attempt of a ticket, by whatever process and in whatever life of the learner. */
export function traceIdOf({ run, ticketId }: SpanStart['ticket']): string {
  return createHash('sha256')
    .update(`${run}\n${readableId(ticketId)}`)
    .digest('hex')
    .slice(0, 32);
}

/** Undefined where the text is none, as from a program of another kind. */
function spanContext(traceparent: string) {
  const [, traceId, spanId, flags] =
    /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(traceparent) ?? [];
  if (traceId === undefined || spanId === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags ?? '00', 16), isRemote: true };
}
