import type { Tracer } from '@opentelemetry/api';
import { sha256 } from '../../base/bytes.js';
import { errorText } from '../../base/errors.js';
import { readableId } from '../../base/ticket-name.js';
import type { Environment } from '../config.js';
import type { Logger } from './logger.js';

/** The stages of a ticket's trace. */
type SpanName = 'ticket' | 'sample' | 'score' | 'train';

interface SpanStart {
  /** All spans of a ticket form one trace, even if a message arrived without its parent. */
  readonly ticket: { readonly run: string; readonly ticketId: string };
  /** `traceparent` of the parent span, from the message. */
  readonly parent?: string | undefined;
  readonly startedAt?: number | undefined; // ms since the epoch; now by default
  readonly attributes?: Readonly<Record<string, string | number>>;
}

/** A running stage, to be ended once. */
export interface Span {
  /** The parent for the next stage: W3C Trace Context, version 00. */
  readonly traceparent: string;
  /** @param endedAt ms since the epoch; now by default. */
  end(endedAt?: number): void;
}

/** Header of a message that belongs to a trace. */
export const traceHeader = 'traceparent';

let start: ((name: SpanName, options: SpanStart) => Span) | undefined;

/** Starts a span; returns undefined if tracing is off. */
export function startSpan(name: SpanName, options: () => SpanStart): Span | undefined {
  return start?.(name, options());
}

/** Timeout of one export with its retries: a service waits for the last one before it exits. */
const exportTimeoutMs = 3_000;

/**
 * Sends the spans of this process to the collector that OTEL_EXPORTER_OTLP_ENDPOINT (or
 * OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) names. Without these, nothing is loaded or recorded. Other OTEL_
 * variables, such as OTEL_TRACES_SAMPLER, work as OpenTelemetry documents them.
 *
 * @returns a handle whose disposal sends the last spans, within a few seconds.
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
  let nextTraceId = ''; // for a span without a parent
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
        log.warn({ reason: errorText(caught) }, 'last spans not sent');
      }
    },
  };
}

/** Returns the trace id of a ticket: the same for all attempts, processes and learner sessions. */
export function traceIdOf({ run, ticketId }: SpanStart['ticket']): string {
  return sha256(`${run}\n${readableId(ticketId)}`).slice(0, 32);
}

/** Parses a `traceparent`; undefined if the text is not one. */
function spanContext(traceparent: string) {
  const [, traceId, spanId, flags] =
    /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(traceparent) ?? [];
  if (traceId === undefined || spanId === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags ?? '00', 16), isRemote: true };
}
