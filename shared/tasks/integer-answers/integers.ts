/** An integer as a text writes it. */
export interface WrittenInteger {
  readonly text: string; // such as `-1,234` or `72.0`
  readonly value: bigint;
}

const maxDigits = 30; // longer ones are no answer to anything

/**
 * The integers of a text in order: `72`, `-5`, `1,234`, `72.00`. A minus sign behind a digit or a
 * parenthesis subtracts and is no sign. What has a fraction, as 7.25, is no integer.
 */
export function integersIn(text: string): WrittenInteger[] {
  return [...text.matchAll(writtenNumber)].flatMap(([written, sign, whole, fraction]) => {
    const digits = whole!.replaceAll(',', '');
    const isInteger = /^0*$/.test(fraction ?? '') && digits.length <= maxDigits;
    return isInteger ? [{ text: written, value: BigInt(`${sign!}${digits}`) }] : [];
  });
}

const writtenNumber = /((?:(?<![\d)])-)?)(\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(\d+))?/g;
