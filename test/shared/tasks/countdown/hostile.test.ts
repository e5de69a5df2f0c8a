import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import type { RewardSpec } from '../../../../shared/tasks/countdown/spec.js';
import { Score } from '../../../../shared/wire/scored-group.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';
import { hostileCorpus } from '../../../support/hostile-corpus.js';

const rewards: RewardSpec = { ...zeroOrOne, formatScore: 0.1, shaping: 'continuous' };
const corpus = hostileCorpus();

describe('the scores of hostile completions', () => {
  for (const group of new Set(corpus.map((entry) => entry.group))) {
    it(`a hostile completion gets the reason that it deserves: ${group}`, () => {
      for (const { style, problem, completion, reason } of corpus.filter(
        (entry) => entry.group === group,
      )) {
        const score = scoreAnswer(forms[style], problem, completion, rewards);
        const shown = `${JSON.stringify(completion.slice(0, 80))} to ${problem.id}`;
        assert.equal(score.reason, reason, shown);
        assert(Score.safeParse(score).success, shown);
        assert.equal(score.reward === 1, reason === 'correct', shown);
        assert.equal(score.reward === 0, !score.hasFormat, shown);
      }
    });
  }

  it('the hostile completions are more than 200, no two alike', () => {
    const all = corpus.map(({ style, problem, completion }) => [style, problem.id, completion]);
    assert(new Set(all.map((entry) => JSON.stringify(entry))).size === corpus.length);
    assert(corpus.length > 200);
  });
});
