import fc from 'fast-check';

/** The number of tries of each fuzz test; set `FUZZ_RUNS` for more, for example overnight. */
export const fuzzRuns = Number(process.env['FUZZ_RUNS'] ?? 300);

/** Mutations of valid bytes by a faulty disk, a faulty network or an attacker. */
export function mutationsOf(seeds: readonly Uint8Array[]): fc.Arbitrary<Uint8Array> {
  const change = fc.record({
    at: fc.nat(),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 8 }),
    how: fc.constantFrom('replace', 'insert', 'cut', 'repeat'),
  });
  return fc
    .tuple(fc.constantFrom(...seeds), fc.array(change, { minLength: 1, maxLength: 6 }))
    .map(([seed, changes]) =>
      changes.reduce((data, { at, bytes, how }) => {
        const place = at % (data.byteLength + 1);
        const [before, after] = [data.subarray(0, place), data.subarray(place)];
        if (how === 'cut') return new Uint8Array(before);
        if (how === 'insert') return concat(before, bytes, after);
        if (how === 'repeat') return concat(data, after);
        return concat(before, bytes, after.subarray(bytes.byteLength));
      }, seed),
    );
}

/** The same mutations for text. */
export function textMutationsOf(seeds: readonly string[]): fc.Arbitrary<string> {
  return mutationsOf(seeds.map((seed) => new TextEncoder().encode(seed))).map((bytes) =>
    new TextDecoder().decode(bytes),
  );
}

function concat(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** Calls a function that may only throw errors of these classes. @returns whether it threw. */
export function refusesOnly(
  classes: readonly (abstract new (...args: never[]) => Error)[],
  run: () => unknown,
): boolean {
  try {
    run();
    return false;
  } catch (caught) {
    if (classes.some((expected) => caught instanceof expected)) return true;
    throw caught;
  }
}
