import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { z } from 'zod';

const Attribute = z.object({
  key: z.string(),
  value: z.object({
    stringValue: z.string().optional(),
    intValue: z.union([z.string(), z.number()]).optional(),
    doubleValue: z.number().optional(),
  }),
});
const Attributes = z
  .array(Attribute)
  .transform((attributes) =>
    Object.fromEntries(
      attributes.map(({ key, value }) => [
        key,
        value.stringValue ?? Number(value.intValue ?? value.doubleValue),
      ]),
    ),
  );

/** A request to export traces in the JSON form of OTLP/HTTP. */
const Request = z.object({
  resourceSpans: z.array(
    z.object({
      resource: z.object({ attributes: Attributes }),
      scopeSpans: z.array(
        z.object({
          spans: z.array(
            z.object({
              traceId: z.string(),
              spanId: z.string(),
              parentSpanId: z.string().optional(),
              name: z.string(),
              startTimeUnixNano: z.string(),
              endTimeUnixNano: z.string(),
              attributes: Attributes,
            }),
          ),
        }),
      ),
    }),
  ),
});

export interface CollectedSpan {
  readonly service: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parent: string | undefined; // span id
  readonly name: string;
  readonly startedAt: number; // ms since the epoch
  readonly endedAt: number;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** A small OTLP/HTTP collector of traces: POST /v1/traces, JSON. */
export class TraceCollector implements AsyncDisposable {
  readonly spans: CollectedSpan[] = [];
  readonly #server = createServer((request, response) => {
    void text(request).then((body) => {
      if (request.url === '/v1/traces') this.#take(body);
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });

  static async start(): Promise<TraceCollector> {
    const collector = new TraceCollector();
    collector.#server.listen(0, '127.0.0.1');
    await once(collector.#server, 'listening');
    return collector;
  }

  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  get url(): string {
    const address = this.#server.address();
    if (typeof address !== 'object' || address === null) throw new Error('it is closed');
    return `http://127.0.0.1:${address.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }

  #take(body: string): void {
    for (const { resource, scopeSpans } of Request.parse(JSON.parse(body)).resourceSpans) {
      const service = String(resource.attributes['service.name']);
      for (const { spans } of scopeSpans) {
        for (const { parentSpanId, startTimeUnixNano, endTimeUnixNano, ...span } of spans) {
          const parent =
            parentSpanId === undefined || parentSpanId === '' ? undefined : parentSpanId;
          const [startedAt, endedAt] = [startTimeUnixNano, endTimeUnixNano].map(
            (nanos) => Number(BigInt(nanos) / 1_000n) / 1_000,
          ) as [number, number];
          this.spans.push({ service, parent, startedAt, endedAt, ...span });
        }
      }
    }
  }
}
