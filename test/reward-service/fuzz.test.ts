import { describe, it } from 'node:test';
import fc from 'fast-check';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { createTextJudge } from '../../reward-service/judge.js';
import { RequestRefused } from '../../reward-service/score-requests.js';
import { countdownSpec } from '../support/countdown-task.js';
import { fuzzRuns, refusesOnly, textMutationsOf } from '../support/mutations.js';
import { answeredAtOnce, dataset, trained } from './values.js';

const judge = createTextJudge(countdownSpec(), dataset);
const request = { problemId: trained.id, completion: '(7-3)*21' };
const seeds = [
  request,
  [request, { problem: { nums: [3, 7, 21], target: 84 }, completion: '<answer>3*21</answer>' }],
  { ...request, task: { prompt: styles.think.en, reward: { formatScore: 0.5 } } },
].map((body) => JSON.stringify(body));
const anyValue = fc.jsonValue({ maxDepth: 3 });

describe('the body of a score request, of any text', () => {
  it('a score request of any text is answered or refused and never crashes the service', () => {
    const bodies = fc.oneof(
      textMutationsOf(seeds),
      fc.json({ maxDepth: 4 }),
      // What gets past the schema and into the task.
      anyValue.map((problem) => JSON.stringify({ problem, completion: '1' })),
      fc
        .record({ prompt: anyValue, reward: anyValue }, { requiredKeys: [] })
        .map((task) => JSON.stringify({ ...request, task })),
    );
    fc.assert(
      fc.property(bodies, (body) => {
        refusesOnly([RequestRefused], () => answeredAtOnce(judge, body));
      }),
      { numRuns: 2 * fuzzRuns },
    );
  });
});
