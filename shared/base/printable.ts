/**
 * A text of others, to be printed: what would steer a terminal or be invisible there (control
 * characters, escape codes by that, marks of direction and of width zero, separators of lines) is
 * written as `\u001b`, which in JSON means the same as the character itself.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    [...Array(character.length).keys()]
      .map((i) => `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** A value as JSON that is to be printed, on one line or indented. */
export function printableJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).split('\n').map(printable).join('\n');
}
