type Search = 'indexOf' | 'lastIndexOf' | 'includes' | 'startsWith' | 'endsWith';

/**
 * An upper bound on the characters that the string searches of `run` read: an algorithm that is linear in its
 * text reads a small multiple of the length of any text.
 */
export function charactersSearched(run: () => void): number {
  let characters = 0;
  const prototype = String.prototype as unknown as Record<Search, (...args: unknown[]) => unknown>;
  const cost: Record<
    Search,
    (text: string, found: unknown, sought: unknown, from: unknown) => number
  > = {
    indexOf: (text, found, _, from) =>
      (found === -1 ? text.length : Number(found)) - Math.max(0, Number(from ?? 0)),
    lastIndexOf: (text, found, _, from) =>
      Math.min(text.length, Number(from ?? text.length)) - Math.max(0, Number(found)),
    includes: ({ length }) => length,
    startsWith: (_, __, sought) => String(sought).length,
    endsWith: (_, __, sought) => String(sought).length,
  };
  const originals = Object.keys(cost).map(
    (name) => [name as Search, prototype[name as Search]] as const,
  );
  for (const [name, original] of originals) {
    prototype[name] = function (this: string, ...args: unknown[]): unknown {
      const found = original.apply(this, args);
      characters += Math.max(1, cost[name](this.valueOf(), found, args[0], args[1]));
      return found;
    };
  }
  try {
    run();
  } finally {
    for (const [name, original] of originals) prototype[name] = original;
  }
  return characters;
}
