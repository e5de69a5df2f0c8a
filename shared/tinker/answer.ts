import type { z } from 'zod';
import { ErrorResponse } from './api.js';
import { protobufType } from './codec.js';
import { BadAnswer, errorOfStatus, type Failure, type TinkerError } from './errors.js';
import { excessIn } from '../base/json-bounds.js';
import { isTransient } from './retry.js';

/** Bounds of the largest JSON result: 65,536 sequences, or the logprobs of a chunk's datums. */
const jsonBounds = { values: 64_000_000, containers: 250_000, depth: 64 };

/** A server's answer of any status, read and classified but not interpreted further. */
export class Answer {
  constructor(
    private readonly operation: string,
    readonly url: string,
    readonly status: number,
    readonly headers: Headers,
    readonly bytes: Uint8Array,
  ) {}

  get isOk(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  get isTransient(): boolean {
    return isTransient(this.status, this.headers, this.bytes.byteLength === 0);
  }

  get isProtobuf(): boolean {
    return this.headers.get('content-type')?.includes(protobufType) ?? false;
  }

  /** The body as JSON; undefined if it is not JSON or exceeds the bounds. */
  json(): unknown {
    if (this.#excess() !== undefined) return undefined;
    try {
      return JSON.parse(new TextDecoder().decode(this.bytes));
    } catch {
      return undefined;
    }
  }

  /** Parses the body. @throws {BadAnswer} if it does not match the API. */
  parse<Schema extends z.ZodType>(schema: Schema): z.output<Schema> {
    const excess = this.#excess();
    if (excess !== undefined) throw this.unexpected(`it has ${excess}`);
    const parsed = schema.safeParse(this.json());
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    throw this.unexpected(`${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not JSON'}`);
  }

  /** Creates the error for an answer that breaks the protocol. */
  unexpected(complaint: string): BadAnswer {
    return new BadAnswer(this.#failure(`${complaint}, in the answer ${this.#excerpt()}`));
  }

  /** The failure of an answer that is not ok. */
  get failure(): Failure & { status: number } {
    const location = this.headers.get('location');
    if (location !== null) return this.#failure(`it redirects to ${location}`);
    const body = ErrorResponse.safeParse(this.json());
    const detail = body.data;
    if (detail === undefined) return this.#failure(this.#excerpt());
    return this.#failure(typeof detail === 'string' ? detail : JSON.stringify(detail));
  }

  get error(): TinkerError {
    return errorOfStatus(this.failure);
  }

  #failure(detail: string): Failure & { status: number } {
    return { operation: this.operation, url: this.url, status: this.status, detail };
  }

  #excerpt(): string {
    if (this.isProtobuf) return `${this.bytes.byteLength} bytes of protobuf`;
    const text = new TextDecoder().decode(this.bytes.subarray(0, 2_000));
    if (text === '') return 'an empty body';
    return text.length > 500 ? `${text.slice(0, 500)}…` : text;
  }

  #excess(): string | undefined {
    return excessIn(this.bytes, jsonBounds);
  }
}
