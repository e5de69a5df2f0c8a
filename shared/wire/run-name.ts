import { z } from 'zod';

/** The most characters of a run's name. */
export const longestRunName = 48;

/** A run's name. It is part of subjects, buckets, file names and URLs: letters, digits, - and _ only. */
export const RunName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$/, 'expected 1 to 48 letters, digits, - or _');
