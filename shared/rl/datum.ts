import { PermanentError } from '../base/errors.js';
import { gspoInputs, type ServedLoss } from './gspo.js';
import { lossInputs, losses } from './losses.js';

/** The arrays of a datum besides its tokens: those that a loss of tokens reads, and the mask of `gspo`. */
export const datumInputs = [...lossInputs, 'sequence_ratio_mask'] as const;
export type DatumInput = (typeof datumInputs)[number];

/**
 * One sequence to train on. Position i scores `targetTokens[i]` given `tokens[0..i]`: the caller
 * shifts the targets, the backend does not. A loss is a sum over positions; 0 in `weights` or
 * `advantages` leaves a position out, except where the loss counts every position.
 */
export interface Datum {
  readonly tokens: Int32Array; // [N]
  readonly targetTokens: Int32Array; // [N]
  readonly inputs: Readonly<Partial<Record<DatumInput, Float32Array>>>; // each [N]
}

/**
 * Refuses malformed data: an empty sequence, an array whose length differs from that of the tokens, a
 * negative token, a NaN.
 *
 * @throws {PermanentError} naming the datum, the array and the position.
 */
export function checkData(data: readonly Datum[]): void {
  if (data.length === 0) throw new PermanentError('there is no datum');
  data.forEach(checkDatum);
}

/** @throws {PermanentError} naming the datum that lacks an input of the loss. */
export function checkInputs(data: readonly Datum[], loss: ServedLoss): void {
  const needed = neededInputs(loss);
  data.forEach(({ tokens, inputs }, index) => {
    const missing = needed.find((name) => inputs[name] === undefined);
    if (missing === undefined) return;
    throw new PermanentError(
      `${loss}: data[${index}] needs ${tokens.length} ${missing}, found none`,
    );
  });
}

function neededInputs(loss: ServedLoss): readonly DatumInput[] {
  if (loss === 'custom') return []; // checked where it is evaluated
  return loss === 'gspo' ? gspoInputs : losses[loss].inputs;
}

function checkDatum(datum: Datum, index: number): void {
  const length = datum.tokens.length;
  const complain = (message: string) => new PermanentError(`datum ${index}: ${message}`);
  if (length === 0) throw complain('it has no token');

  const arrays = [
    ['tokens', datum.tokens],
    ['target_tokens', datum.targetTokens],
    ...datumInputs.map((name) => [name, datum.inputs[name]] as const),
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
