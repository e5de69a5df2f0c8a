import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { createJudge } from '../../reward-service/judge.js';
import { RequestRefused } from '../../reward-service/score-requests.js';
import { runConfig } from '../support/messages.js';
import { answeredAtOnce, dataset, trained } from './values.js';

const unused = {
  encode: unreached,
  decode: unreached,
  chatText: unreached,
  beginning: [],
  eosTokenIds: [],
  unknownTokenId: undefined,
};
function unreached(): never {
  throw new Error('texts are scored without a tokenizer');
}

const judge = createJudge(runConfig(), dataset, unused, 1);
const ask = (body: unknown) => answeredAtOnce(judge, JSON.stringify(body));

describe('a score request', () => {
  it('a score request is answered for a problem of the run by its id', () => {
    assert.deepEqual(ask({ problemId: trained.id, completion: '(7-3)*21' }), {
      reward: 1,
      exactReward: '1',
      hasFormat: true,
      isValid: true,
      isCorrect: true,
      reason: 'correct',
      value: '84',
    });
  });

  it('a score request is answered for any problem by its content, in another style, with other rewards', () => {
    const score = ask({
      problem: { nums: [1, 2], target: 4 },
      completion: '<answer>1+2</answer>',
      task: { prompt: styles.think.en, reward: { formatScore: 0.5, shaping: 'continuous' } },
    });
    assert(!Array.isArray(score));
    assert.equal(score.exactReward, '3/4');
  });

  it('score requests in one body are answered in order', () => {
    const completions = ['(7-3)*21', '', '7*21'];
    const scores = ask(completions.map((completion) => ({ problemId: trained.id, completion })));
    assert(Array.isArray(scores));
    assert.deepEqual(
      scores.map(({ reason }) => reason),
      ['correct', 'no_answer', 'wrong_numbers'],
    );
    assert.deepEqual(ask([]), []);
  });

  const refused: [what: string, body: unknown, status: number, message: RegExp][] = [
    ['no object', 7, 400, /the body: .*object/],
    ['null', null, 400, /the body: .*object/],
    ['nothing in it', {}, 400, /completion: /],
    ['no problem', { completion: '1' }, 400, /give either problemId or problem/],
    ['half a problem', { problem: { nums: [1, 2] }, completion: '1' }, 400, /problem\.target: /],
    [
      'two problems',
      { problemId: trained.id, problem: { nums: [1, 2], target: 3 }, completion: '1' },
      400,
      /give either problemId or problem/,
    ],
    [
      'an unknown id',
      { problemId: '9=9', completion: '9' },
      404,
      /problemId: there is no problem "9=9" here/,
    ],
    [
      'an unknown id among known ones',
      [trained.id, '9=9'].map((problemId) => ({ problemId, completion: '9' })),
      404,
      /^1\.problemId: there is no problem "9=9"/,
    ],
    ['a misspelt key', { problemId: trained.id, complation: '1' }, 400, /complation/],
    [
      'numbers as text',
      { problem: { nums: ['1', '2'], target: 3 }, completion: '1' },
      400,
      /problem\.nums\.0: /,
    ],
    [
      'too many numbers',
      { problem: { nums: Array(17).fill(1), target: 3 }, completion: '1' },
      400,
      /problem\.nums: /,
    ],
    [
      'a fraction',
      { problem: { nums: [0.5, 2], target: 1 }, completion: '1' },
      400,
      /problem\.nums\.0: /,
    ],
    [
      'a reward that the task does not know',
      { problemId: trained.id, completion: '1', task: { reward: { shaping: 'steep' } } },
      400,
      /task\.reward\.formatScore: .*; task\.reward\.shaping: /,
    ],
    [
      'a part that the task does not have',
      { problemId: trained.id, completion: '1', task: { taste: 1 } },
      400,
      /task: .*taste/,
    ],
    [
      'a bad one among good ones',
      [{ problemId: trained.id, completion: '1' }, { problemId: trained.id }],
      400,
      /1\.completion: /,
    ],
    [
      'more parts of a prompt than a prompt can have',
      {
        problemId: trained.id,
        completion: '1',
        task: { prompt: { ...styles.think.en, stop: Array(100_000).fill(1) } },
      },
      400,
      /^task\.prompt\.stop: Too big[^;]*$/,
    ],
    ['too many', Array(1_001).fill({ problemId: trained.id, completion: '1' }), 400, /1000/],
  ];
  for (const [what, body, status, message] of refused) {
    it(`a score request with ${what} is refused with ${status} and the reason`, () => {
      assert.throws(
        () => ask(body),
        (error: unknown) => {
          assert(error instanceof RequestRefused);
          assert.equal(error.status, status);
          assert.match(error.message, message);
          return true;
        },
      );
    });
  }

  it('a score request is refused with only an excerpt of its content', () => {
    const long = 'k'.repeat(500_000);
    const asked = { problemId: trained.id, completion: '1' };
    const bodies = [
      { ...asked, [long]: 1 },
      { ...asked, task: { [long]: 1 } },
      Array.from({ length: 900 }, () => ({ ...asked, ['k'.repeat(400)]: 1 })),
    ];
    for (const body of bodies) {
      assert.throws(
        () => ask(body),
        (error: unknown) => {
          assert(error instanceof RequestRefused);
          assert.match(error.message, /kkk…/);
          assert(error.message.length < 4_000, `${error.message.length} characters`);
          return true;
        },
      );
    }
  });

  it('a score request is refused before parsing when it has far too many values', () => {
    const body = `[${'[],'.repeat(60_000)}[]]`;
    assert.throws(
      () => answeredAtOnce(judge, body),
      (error: unknown) => error instanceof RequestRefused && error.status === 413,
    );
  });

  it('a score request is refused when it is not JSON', () => {
    assert.throws(() => answeredAtOnce(judge, '{"completion": '), /the body is not JSON/);
  });
});
