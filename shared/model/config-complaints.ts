import type { z } from 'zod';

/** A reason why a model's config.json is refused: the key, its value and the remedy. */
export interface Complaint {
  readonly key: string;
  readonly value: unknown; // undefined: the key is missing
  readonly remedy: string;
}

/** One complaint as a line: `hidden_act is "gelu": only silu runs`. */
export function describe({ key, value, remedy }: Complaint): string {
  if (value === undefined) return `${key} is missing: ${remedy}`;
  const text = JSON.stringify(value);
  return `${key} is ${text.length > 80 ? `${text.slice(0, 80)}…` : text}: ${remedy}`;
}

/** The schema errors in `json`, which is the value of the key `parent` if given. */
export function complaintsOf(error: z.ZodError, json: unknown, parent?: string): Complaint[] {
  const complain = (keys: readonly PropertyKey[], remedy: string): Complaint => ({
    key: [...(parent === undefined ? [] : [parent]), ...keys].join('.') || 'the file',
    value: keys.reduce<unknown>((value, key) => (value as Keyed | undefined)?.[key], json),
    remedy,
  });
  return error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => complain([key], 'not known here; remove it if it has no effect'))
      : [complain(issue.path, issue.message)],
  );
}

type Keyed = Readonly<Record<PropertyKey, unknown>>;
