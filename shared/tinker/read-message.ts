import { fromBinary, type DescMessage, type MessageShape } from '@bufbuild/protobuf';
import { errorText, PermanentError } from '../base/errors.js';
import { assertWithin, TooManyParts, type PartLimits } from './wire-bounds.js';

/** Decodes a message after checking the number of its parts; ignores unknown fields. */
export function parse<Desc extends DescMessage>(
  schema: Desc,
  bytes: Uint8Array,
  limits: PartLimits,
): MessageShape<Desc> {
  try {
    assertWithin(schema, bytes, limits);
    return fromBinary(schema, bytes, { readUnknownFields: false });
  } catch (cause) {
    const what = cause instanceof TooManyParts ? 'are too much for a' : 'are no';
    throw new PermanentError(
      `${bytes.byteLength} bytes ${what} ${schema.name}: ${errorText(cause)}`,
      { cause },
    );
  }
}

/** Runs `read`, prefixing its errors with `place`. */
export function within<T>(place: string, read: () => T): T {
  try {
    return read();
  } catch (caught) {
    throw new PermanentError(`${place}: ${errorText(caught)}`, { cause: caught });
  }
}
