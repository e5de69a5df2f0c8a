import { styles } from '../../shared/tasks/integer-answers/prompts.js';
import type { IntegerAnswersSpec } from '../../shared/tasks/integer-answers/task.js';

/** A valid integer-answers configuration of a run, except for the fields that a test sets. */
export function integerAnswersSpec(over: Partial<IntegerAnswersSpec> = {}): IntegerAnswersSpec {
  return {
    name: 'integer-answers',
    dataset: { kind: 'jsonl', path: 'questions.jsonl', seed: 0, testSize: 1 },
    prompt: styles.compact.en,
    reward: { formatPenalty: 0.1 },
    ...over,
  };
}
