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
/** Addresses separated by commas. */
export const engineAddresses = z
  .string()
  .refine((text) => addressesIn(text).every((address) => httpAddress.safeParse(address).success), {
    error: 'expected http://host:port, or several separated by commas',
  });

/** The addresses of {@link engineAddresses}, without a slash at the end. */
export function addressesIn(text: string): string[] {
  return text.split(',').map((address) => address.trim().replace(/\/+$/, ''));
}

/** Reports under its key that a setting does not go with others. */
export type AddIssue<Settings> = (key: keyof Settings & string, message: string) => void;
