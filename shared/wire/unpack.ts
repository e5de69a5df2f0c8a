import { decode } from '@msgpack/msgpack';

/** Deeper than any of our messages; the decoder itself has no bound. */
const maxDepth = 32;

/**
 * Decodes a MessagePack body after measuring its shape. An array header can claim billions of elements
 * in five bytes, and the decoder allocates them before it reads any, again for each nested array. An
 * empty array or block takes a byte or two in the body but a hundred in memory.
 *
 * @throws {RangeError} if the bytes claim more elements than they can hold, end early, are nested more than 32 deep,
 *   or hold too many arrays, maps and blocks: 1,000, plus one for every 2.5 bytes.
 * @throws {Error} of the decoder, for any other mistake.
 */
export function unpack(data: Uint8Array): unknown {
  measure(data);
  return decode(data);
}

/** The smallest part that our messages have many of is a pair of small integers, which takes 3 bytes. */
const bytesPerPart = 2.5;
const partsOnce = 1_000;

/** Whether the decoder allocates an object for a value with this first byte. */
function isPart(type: number): boolean {
  return (
    (type >= 0x80 && type < 0xa0) ||
    (type >= 0xc4 && type <= 0xc9) ||
    (type >= 0xd4 && type <= 0xd8) ||
    (type >= 0xdc && type <= 0xdf)
  );
}

/** Walks over the headers. Every element takes at least a byte, which bounds the claims. */
function measure(data: Uint8Array): void {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const maxParts = partsOnce + data.byteLength / bytesPerPart;
  let parts = 0;
  const open = [1]; // elements still to come, of the value and of each container in it
  let claimed = 1; // sum of open
  let at = 0;
  while (claimed > 0) {
    while (open.at(-1) === 0) open.pop();
    open[open.length - 1]! -= 1;
    claimed -= 1;
    const { bytes, elements } = headerAt(view, at);
    if (isPart(data[at]!) && ++parts > maxParts) {
      throw new RangeError(`more than ${Math.floor(maxParts)} arrays, maps and blocks`);
    }
    at += bytes;
    if (elements > 0) {
      open.push(elements);
      claimed += elements;
    }
    if (open.length > maxDepth) throw new RangeError(`nested more than ${maxDepth} deep`);
    if (claimed > data.byteLength - at) {
      throw new RangeError(`${claimed} more values in ${data.byteLength - at} bytes`);
    }
  }
}

/** The size of the value at `at`: its own bytes and the elements that follow. */
function headerAt(view: DataView, at: number): { bytes: number; elements: number } {
  const type = view.getUint8(at);
  if (type < 0x80 || type >= 0xe0) return { bytes: 1, elements: 0 }; // small integers
  if (type < 0x90) return { bytes: 1, elements: 2 * (type & 0x0f) }; // map
  if (type < 0xa0) return { bytes: 1, elements: type & 0x0f }; // array
  if (type < 0xc0) return { bytes: 1 + (type & 0x1f), elements: 0 }; // string
  const fixed = fixedBytes[type];
  if (fixed !== undefined) return { bytes: fixed, elements: 0 };
  const { width, extra, perUnit } = sized[type]!;
  const units = width === 1 ? view.getUint8(at + 1) : wide(view, at + 1, width);
  return perUnit === 0
    ? { bytes: 1 + width + extra + units, elements: 0 }
    : { bytes: 1 + width, elements: perUnit * units };
}

function wide(view: DataView, at: number, width: number): number {
  return width === 2 ? view.getUint16(at) : view.getUint32(at);
}

/** nil, the byte that is never used, booleans, floats, integers, and extensions of fixed size. */
// oxfmt-ignore
const fixedBytes: Readonly<Record<number, number>> = {
  0xc0: 1, 0xc1: 1, 0xc2: 1, 0xc3: 1, 0xca: 5, 0xcb: 9,
  0xcc: 2, 0xcd: 3, 0xce: 5, 0xcf: 9, 0xd0: 2, 0xd1: 3, 0xd2: 5, 0xd3: 9,
  0xd4: 3, 0xd5: 4, 0xd6: 6, 0xd7: 10, 0xd8: 18,
};

interface Sized {
  readonly width: number; // bytes of the length
  readonly extra: number; // bytes between it and the content: an extension's type
  readonly perUnit: 0 | 1 | 2; // elements per unit of length; 0: the unit is a byte
}

const sized: Readonly<Record<number, Sized>> = {
  ...lengths([0xc4, 0xc5, 0xc6], { extra: 0, perUnit: 0 }), // binary
  ...lengths([0xc7, 0xc8, 0xc9], { extra: 1, perUnit: 0 }), // extension
  ...lengths([0xd9, 0xda, 0xdb], { extra: 0, perUnit: 0 }), // string
  ...lengths([undefined, 0xdc, 0xdd], { extra: 0, perUnit: 1 }), // array
  ...lengths([undefined, 0xde, 0xdf], { extra: 0, perUnit: 2 }), // map
};

/** @param types of a length of 1, 2 and 4 bytes. */
function lengths(
  types: readonly (number | undefined)[],
  rest: Omit<Sized, 'width'>,
): Record<number, Sized> {
  return Object.fromEntries(
    types.flatMap((type, i) => (type === undefined ? [] : [[type, { width: 2 ** i, ...rest }]])),
  );
}
