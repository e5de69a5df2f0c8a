/** Shorter ones may be words of their own (a key `test`), which would be struck out of every text. */
const shortest = 8;

/** By the secret: what finds it in a text, also in JSON, and in JSON inside JSON. */
const known = new Map<string, RegExp>();

/** From now on no log and no message of this process shows this value, whatever characters it has. */
export function keepSecret(value: string): void {
  if (value.length < shortest || known.has(value)) return;
  const pattern = Array.from(value, (character) => {
    if (character === '"') return '\\\\*"';
    if (character === '\\') return '\\\\+';
    return character.replace(/[^\w\s]/, '\\$&');
  });
  known.set(value, new RegExp(pattern.join(''), 'g'));
}

/** The text without secrets that were kept, keys of a backend, seeds of nkeys, JWTs, and the user of a URL. */
export function withoutSecrets(text: string): string {
  let shown = text;
  for (const secret of known.values()) shown = shown.replace(secret, '[redacted]');
  return shown
    .replace(/\btml-[^\s"'\\,;)]{4,}/g, 'tml-[redacted]')
    .replace(/\bS[ACNOUX][A-Z2-7]{56}\b/g, '[redacted seed]')
    .replace(/\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}/g, '[redacted JWT]')
    .replace(/([a-z]:\/\/)[^\s/@"\\]+@/g, '$1[redacted]@');
}
