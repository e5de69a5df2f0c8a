/** Kinds of fields that the schemas of `api.ts` share. */
import { z } from 'zod';

/** Absent and null mean the same: the SDK drops nulls, other clients may write them. */
export const optional = <Schema extends z.ZodType>(schema: Schema) =>
  schema.nullish().transform((value) => value ?? undefined);

export const kind = <Name extends string>(name: Name) => z.literal(name).default(name);
export const count = z.int().nonnegative();
/** Broken weights give NaN, which JSON cannot express: servers write null. */
export const anyNumber = z
  .number()
  .nullable()
  .transform((value) => value ?? NaN);
/**
 * A long array of numbers, checked as a whole with at most one issue: an object per element, or an issue for
 * each of a million wrong elements, would take a hundred times the memory of the text.
 */
const numbers = (isRight: (value: unknown) => boolean, expected: string) =>
  z.unknown().transform((value, context): number[] => {
    if (!Array.isArray(value)) {
      context.addIssue(`expected an array, each element ${expected}`);
      return z.NEVER;
    }
    const bad = value.findIndex((element) => !isRight(element));
    if (bad === -1) return value as number[];
    context.addIssue(`element ${bad} of ${value.length} is not ${expected}`);
    return z.NEVER;
  });
/** A larger one would become another token in an Int32Array. */
export const isTokenId = (value: unknown): boolean =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) < 2 ** 31;
export const tokenIds = numbers(isTokenId, 'a token id');
export const finiteNumbers = numbers((value) => Number.isFinite(value), 'a number');
export const anyNumbers = numbers(
  (value) => value === null || typeof value === 'number',
  'a number or null',
).transform((values: (number | null)[]) => values.map((value) => value ?? NaN));

/** A record with few keys, so that a million keys cause only one issue. */
export const few = <Value extends z.ZodType>(value: Value, most: number) =>
  z
    .record(z.string(), z.unknown())
    .refine((record) => Object.keys(record).length <= most, `expected at most ${most} keys`)
    .pipe(z.record(z.string(), value));

const emptyValues = ['null', 'false', '0', '""', '[]', '{}'];

/**
 * An object in which a further field is refused by name: an option that is ignored gives other results than
 * were asked for. Null, false, 0 and empty ask for nothing: they are the defaults of newer clients.
 */
export const closed = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z
    .looseObject({})
    .superRefine((fields, context) => {
      const unknown = Object.keys(fields).filter((key) => !Object.hasOwn(shape, key));
      for (const key of unknown.slice(0, 16)) {
        const text = JSON.stringify(fields[key]);
        if (emptyValues.includes(text)) continue;
        const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
        const message = `${key} is ${shown}: not supported here; leave it out`;
        context.addIssue({ code: 'custom', path: [key], message });
      }
    })
    .pipe(z.object(shape));

/** The SDK's integers have 64 bits, of which a double keeps 53: wider ones may arrive as text. */
export const wideInteger = z.union([z.int(), z.bigint(), z.string().regex(/^-?[0-9]{1,20}$/)]);

/** The tokens of a text; images and audio are refused. */
export const TextChunks = z
  .array(z.object({ type: z.literal('encoded_text'), tokens: tokenIds }))
  .max(1_024);
