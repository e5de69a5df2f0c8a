import { z } from 'zod';

// Types of settings, to be described where they are used. Flags and the environment give numbers as text.

export const int = z.coerce.number().int();
export const number = z.coerce.number();
export const string = z.string().min(1);
export const port = int.min(0).max(65_535); // 0: any free port
export const natsAddress = z.url({
  protocol: /^(nats|tls)$/,
  error: 'expected nats://host:port',
});
export const httpAddress = z.url({ protocol: /^https?$/, error: 'expected http://host:port' });

/** A setting of several values, separated by commas; its flag may also be given once for each. */
export function listOf<Text extends z.ZodString>(text: Text): Text {
  return text.meta({ isList: true });
}

/** Whether a setting was made by {@link listOf}. */
export function isList(schema: unknown): boolean {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional) {
    return isList(schema.unwrap());
  }
  if (schema instanceof z.ZodPipe) return isList(schema.in);
  return schema instanceof z.ZodType && schema.meta()?.['isList'] === true;
}

/** The lease of an actor, which has at most 16 KiB, describes each of its servers. */
const mostEngines = 32;

/** Addresses separated by commas. */
export const engineAddresses = listOf(z.string())
  .refine((text) => addressesIn(text).every((address) => httpAddress.safeParse(address).success), {
    error: 'expected http://host:port, or several separated by commas',
  })
  .refine((text) => addressesIn(text).length <= mostEngines, {
    error: `expected at most ${mostEngines} addresses; start more actors for others`,
  });

/** The addresses of {@link engineAddresses}, without a slash at the end. */
export function addressesIn(text: string): string[] {
  return text.split(',').map((address) => address.trim().replace(/\/+$/, ''));
}

/** Reports under its key that a setting does not go with others. */
export type AddIssue<Settings> = (key: keyof Settings & string, message: string) => void;
