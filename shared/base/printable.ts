/**
 * Escapes an untrusted text for a terminal: control characters (and so escape codes), direction marks,
 * zero-width characters and line separators become escapes such as `\u001b`, which in JSON mean the same as the
 * character itself.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    [...Array(character.length).keys()]
      .map((i) => `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** Formats a value as printable JSON, on one line or indented. */
export function printableJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).split('\n').map(printable).join('\n');
}
