/** Shorter secrets may be ordinary words (a key `test`), which would be removed from every text. */
const shortest = 8;

/** Patterns by secret; each also matches the secret in JSON and in JSON inside JSON. */
const known = new Map<string, RegExp>();

/** Registers a secret, which `withoutSecrets` then removes from all logs and messages of this process. */
export function keepSecret(value: string): void {
  if (value.length < shortest || known.has(value)) return;
  const pattern = Array.from(value, (character) => {
    if (character === '"') return '\\\\*"';
    if (character === '\\') return '\\\\+';
    return character.replace(/[^\w\s]/, '\\$&');
  });
  known.set(value, new RegExp(pattern.join(''), 'g'));
}

/** What a JWT is part of. It begins where a word does: a search from each `eyJ` in a long word would take quadratic time. */
const threeParts = /(?<![\w-])[\w-]{13,}\.[\w-]{10,}\.[\w-]{10,}/g;

/** Removes registered secrets, backend keys, nkey seeds, JWTs and the credentials of URLs from a text. */
export function withoutSecrets(text: string): string {
  let shown = text;
  for (const secret of known.values()) shown = shown.replace(secret, '[redacted]');
  return shown
    .replace(/\btml-[^\s"'\\,;)]{4,}/g, 'tml-[redacted]')
    .replace(/\bS[ACNOUX][A-Z2-7]{56}\b/g, '[redacted seed]')
    .replace(threeParts, (parts) => parts.replace(/\beyJ.*/, '[redacted JWT]'))
    .replace(/([a-z]:\/\/)[^\s/@"\\]+@/g, '$1[redacted]@');
}
