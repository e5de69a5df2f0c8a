import { Encoder } from '@msgpack/msgpack';
import { z } from 'zod';
import { PermanentError } from '../base/errors.js';
import { unpack } from './unpack.js';

/** A message that does not match the schema of its subject. Redelivery cannot help. */
export class WireError extends PermanentError {
  override readonly name = 'WireError';
}

/**
 * Encodes a message as MessagePack; typed arrays become little-endian blocks.
 *
 * @throws {WireError} if the value violates its schema, so that no malformed message is sent.
 */
export function encode<Schema extends z.ZodType>(
  schema: Schema,
  message: z.output<Schema>,
): Uint8Array {
  const encoded = z.safeEncode(schema, message);
  if (!encoded.success) throw new WireError(`cannot send: ${describe(encoded.error)}`);
  const bytes = packer.encode(encoded.data);
  if (bytes.byteLength > keptBytes) packer = newPacker();
  return bytes;
}

/** Keeps the buffer that it has grown, unless a message was very large. */
let packer = newPacker();
const keptBytes = 2 ** 20;

function newPacker(): Encoder {
  return new Encoder({ ignoreUndefined: true });
}

/**
 * Decodes the message in `data`.
 *
 * @param subject where it came from, for the error.
 * @throws {WireError} naming each wrong field, its path and what was expected.
 */
export function decode<Schema extends z.ZodType>(
  schema: Schema,
  subject: string,
  data: Uint8Array,
): z.output<Schema> {
  let body: unknown;
  try {
    body = unpack(data);
  } catch (cause) {
    throw new WireError(`${subject}: not MessagePack (${data.byteLength} bytes)`, { cause });
  }
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw new WireError(`${subject}: ${describe(parsed.error)}`);
  return parsed.data;
}

const shownIssues = 10;
const shownChars = 2_000;

/** The first few problems. The full list could be as long as the message, and goes to logs and dead letters. */
function describe({ issues }: z.ZodError): string {
  const shown = issues
    .slice(0, shownIssues)
    .map(({ path, message }) => `${path.map(String).join('.') || 'message'}: ${message}`);
  if (issues.length > shownIssues) shown.push(`and ${issues.length - shownIssues} more`);
  const text = shown.join('; ');
  return text.length > shownChars ? `${text.slice(0, shownChars)}…` : text;
}

/** Token ids on the wire: little-endian int32, 4 bytes a token. */
export const Int32Block = z.codec(z.instanceof(Uint8Array), z.instanceof(Int32Array), {
  decode: (bytes, context) => {
    if (bytes.byteLength % 4 !== 0) return notAMultiple(bytes, context);
    return new Int32Array(aligned(bytes));
  },
  encode: (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength),
});

/** Logprobs on the wire: little-endian float32, 4 bytes a value. */
export const Float32Block = z.codec(z.instanceof(Uint8Array), z.instanceof(Float32Array), {
  decode: (bytes, context) => {
    if (bytes.byteLength % 4 !== 0) return notAMultiple(bytes, context);
    return new Float32Array(aligned(bytes));
  },
  encode: (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength),
});

/** A copy at an aligned address: a MessagePack block starts at any byte. */
function aligned(bytes: Uint8Array): ArrayBuffer {
  const copy = new ArrayBuffer(bytes.byteLength);
  new Uint8Array(copy).set(bytes);
  return copy;
}

function notAMultiple(bytes: Uint8Array, context: z.core.ParsePayload): never {
  context.issues.push({
    code: 'custom',
    input: bytes,
    message: `a block of 4-byte elements cannot have ${bytes.byteLength} bytes`,
  });
  return z.NEVER;
}
