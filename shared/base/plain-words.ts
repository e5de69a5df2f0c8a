import type { z } from 'zod';

/** The message of `plainWords` for a missing value. */
export const isMissing = 'it is missing';

const kinds: Readonly<Record<string, string>> = {
  number: 'a number',
  int: 'a whole number',
  string: 'text',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
};

/**
 * Describes a problem with a value in plain words, if the schema has no message for it; passed to
 * zod's `parse` as `error`. Other kinds of issues keep zod's messages.
 */
export const plainWords: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined) return isMissing;
      return `expected ${kinds[issue.expected] ?? issue.expected}`;
    case 'too_small':
    case 'too_big': {
      const isLeast = issue.code === 'too_small';
      const bound = isLeast ? issue.minimum : issue.maximum;
      const atMost = isLeast ? 'at least' : 'at most';
      if (issue.origin === 'string') {
        return isLeast && Number(bound) === 1
          ? 'expected some text'
          : `expected ${atMost} ${bound} characters`;
      }
      if (issue.origin === 'array') return `expected ${atMost} ${bound} items`;
      const beyond = isLeast ? 'more than' : 'less than';
      return `expected ${issue.inclusive === true ? atMost : beyond} ${bound}`;
    }
    case 'invalid_value':
      return `expected ${issue.values.length === 1 ? '' : 'one of '}${issue.values.map(String).join(', ')}`;
    default:
      return undefined;
  }
};
