import { PermanentError } from '../base/errors.js';
import { lossInputs, type Datum } from './types.js';

/**
 * Refuses data that would train on nonsense: an empty sequence, an array of another length than the
 * tokens, a negative token, a NaN.
 *
 * @throws {PermanentError} naming the datum, the array and the position.
 */
export function checkData(data: readonly Datum[]): void {
  if (data.length === 0) throw new PermanentError('there is no datum');
  data.forEach(checkDatum);
}

/** How many bytes a datum takes in a request, as the SDK counts for its chunks. */
export function datumBytes(datum: Datum): number {
  const floats = lossInputs.reduce((sum, name) => sum + (datum.inputs[name]?.length ?? 0), 0);
  return 4 * datum.tokens.length + 8 * datum.targetTokens.length + 4 * floats;
}

function checkDatum(datum: Datum, index: number): void {
  const length = datum.tokens.length;
  const complain = (message: string) => new PermanentError(`datum ${index}: ${message}`);
  if (length === 0) throw complain('it has no token');

  const arrays = [
    ['tokens', datum.tokens],
    ['target_tokens', datum.targetTokens],
    ...lossInputs.map((name) => [name, datum.inputs[name]] as const),
  ] as const;
  for (const [name, array] of arrays) {
    if (array === undefined) continue;
    if (array.length !== length) {
      throw complain(`${name} has ${array.length} elements for ${length} tokens`);
    }
    const isToken = array instanceof Int32Array;
    for (let i = 0; i < length; i++) {
      if (isToken ? array[i]! < 0 : !Number.isFinite(array[i])) {
        throw complain(`${name}[${i}] is ${array[i]!}`);
      }
    }
  }
}
