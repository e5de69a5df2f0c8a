/** How large a JSON text may become in memory. */
export interface JsonBounds {
  readonly values: number; // leaves: strings, numbers and so on, and empty arrays and objects
  readonly containers: number; // arrays and objects, each of which takes far more than its bytes
  readonly depth: number; // nesting of containers
}

/**
 * Checks the size of a JSON text before it is parsed: 20 MB of `[[],[],…` would become a gigabyte.
 *
 * @returns the exceeded bound, such as `more than 1000 arrays and objects`; undefined if within the bounds.
 *   Does not check whether the text is valid JSON.
 */
export function excessIn(text: Uint8Array, bounds: JsonBounds): string | undefined {
  let values = 1;
  let containers = 0;
  let depth = 0;
  let isInString = false;
  for (let i = 0; i < text.length; i++) {
    const byte = text[i]!;
    if (isInString) {
      if (byte === backslash) i++;
      else if (byte === quote) isInString = false;
      continue;
    }
    switch (byte) {
      case quote:
        isInString = true;
        break;
      case comma:
        if (++values > bounds.values) return `more than ${bounds.values} values`;
        break;
      case openBracket:
      case openBrace:
        if (++containers > bounds.containers) {
          return `more than ${bounds.containers} arrays and objects`;
        }
        if (++depth > bounds.depth) return `arrays and objects more than ${bounds.depth} deep`;
        break;
      case closeBracket:
      case closeBrace:
        depth--;
        break;
    }
  }
  return undefined;
}

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];
