import { z } from 'zod';

/** Kinds of fields that settings share; flags and the environment bring numbers as text. */
export const whole = z.coerce.number().int();
export const real = z.coerce.number();
export const text = z.string().min(1);

/** Reports that a setting does not go with others, under its key. */
export type Complain<Settings> = (key: keyof Settings & string, message: string) => void;
