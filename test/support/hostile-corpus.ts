import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { problemOf, type Problem } from '../../shared/tasks/countdown/problem.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import type { forms } from './countdown-task.js';

/** A strange, wrong or malicious completion and the score that it must get. */
export interface HostileCompletion {
  readonly group: string;
  readonly style: keyof typeof forms;
  readonly problem: Problem;
  readonly completion: string;
  readonly reason: string;
  /** The row of `shared/tasks/countdown/scoring.md` that explains how and why TuFT's rules differ. */
  readonly differs: string | undefined;
}

/** A text, or its pieces: `["(", 10000]` stands for ten thousand parentheses. */
const Text = z.union([
  z.string(),
  z.array(z.union([z.string(), z.tuple([z.string(), z.int().positive()])])),
]);

/** An `answer` is put into the tags of its style; a `completion` is complete. */
const Entry = z
  .strictObject({
    answer: Text.optional(),
    completion: Text.optional(),
    reason: z.string(),
    style: z.enum(['compact', 'fewshot', 'think']).default('fewshot'),
    numbers: z.array(z.int().nonnegative()).default([3, 7, 21]),
    target: z.int().default(84),
    differs: z.string().optional(),
  })
  .refine(({ answer, completion }) => (answer === undefined) !== (completion === undefined));

/** The corpus, which is data: `test/shared/tasks/countdown/hostile-completions.json`. */
export function hostileCorpus(): HostileCompletion[] {
  const repository = join(embeddedModelPath, '..', '..', '..');
  const path = join(repository, 'test', 'shared', 'tasks', 'countdown', 'hostile-completions.json');
  const groups = z.record(z.string(), z.array(Entry)).parse(JSON.parse(readFileSync(path, 'utf8')));
  return Object.entries(groups).flatMap(([group, entries]) =>
    entries.map(({ answer, completion, numbers, target, reason, style, differs }) => ({
      group,
      style,
      problem: problemOf(numbers, target),
      completion: flat(
        answer === undefined ? textOf(completion!) : `<answer>${textOf(answer)}</answer>`,
      ),
      reason,
      differs,
    })),
  );
}

function textOf(text: z.output<typeof Text>): string {
  if (typeof text === 'string') return text;
  return text
    .map((piece) => (typeof piece === 'string' ? piece : piece[0].repeat(piece[1])))
    .join('');
}

/** The text as one flat string, as from a tokenizer or a JSON body, since `repeat` builds a tree. */
function flat(text: string): string {
  return Buffer.from(text, 'utf16le').toString('utf16le');
}
