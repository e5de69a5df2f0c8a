import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { checkPrompts, type PromptCheck } from '../../../shared/tasks/check-prompts.js';
import { problemOfRow, integerAnswers } from '../../../shared/tasks/integer-answers/task.js';
import { styles } from '../../../shared/tasks/integer-answers/prompts.js';
import { loadTokenizer, type Tokenizer } from '../../../shared/model/tokenizer.js';
import { datasetOf } from '../../../shared/tasks/dataset.js';
import { integerAnswersSpec } from '../../support/integer-answers-task.js';
import { tinyModel } from '../../support/tiny-model.js';

describe('the check of the prompts of a run', () => {
  let model: Awaited<ReturnType<typeof tinyModel>>;
  let tokenizer: Tokenizer;
  before(async () => {
    model = await tinyModel();
    tokenizer = await loadTokenizer(model);
  });
  after(() => model[Symbol.asyncDispose]());

  const check = (questions: string[], over: Partial<PromptCheck> = {}): void => {
    const [first, ...others] = questions.map((question) => problemOfRow({ question, answer: 1 }));
    checkPrompts({
      task: integerAnswers.open(integerAnswersSpec()),
      dataset: datasetOf('integer-answers', [first!], others),
      tokenizer,
      modelDir: '/models/tiny',
      room: { maxContext: 64, maxTokens: 20 },
      ...over,
    });
  };

  it('the check accepts prompts in the alphabet of the character tokenizer', () => {
    check(['12*(3+4)=:', '3 7 21=64:']);
  });

  it('the check names the characters that the tokenizer lacks, wherever they are', () => {
    assert.throws(
      () => {
        check(['1+1', 'How much?']);
      },
      {
        name: 'UserError',
        message:
          /model in \/models\/tiny cannot read .* no token for "\?", "H", "c", "h", "m", "o", "u", "w"; choose another --prompt-style/,
      },
    );
    assert.throws(() => {
      check(['1+1'], {
        task: integerAnswers.open(integerAnswersSpec({ prompt: styles.fewshot.zh })),
      });
    }, /no token for .*, … \(\d+ in all\)/);
  });

  it('the check accepts any prompt for a tokenizer that can encode all texts', () => {
    const bytes = {
      encode: (text: string) => Int32Array.from(Buffer.from(text)),
      decode: (tokens: ArrayLike<number>) => Buffer.from(Array.from(tokens)).toString(),
      chatText: () => '',
      eosTokenIds: [],
      beginning: [],
      unknownTokenId: undefined,
    };
    check(['How much?', '多少？'], { tokenizer: bytes });
  });

  it('the check refuses a text that ends answers if it is a special token, which no answer shows', () => {
    const task = integerAnswers.open(integerAnswersSpec());
    const stopping = (...stop: string[]) => ({ task: { ...task, stop } });
    check(['1+1'], stopping('=', '</answer>', '\n', '<eos>')); // the model has no token for the letters
    assert.throws(
      () => {
        check(['1+1'], stopping('=', '<pad>'));
      },
      {
        name: 'UserError',
        message: /ends answers at <pad>, .* eos_token_id in .*generation_config/,
      },
    );
  });

  it('the check refuses prompts when even the shortest leaves no room for an answer', () => {
    const long = '1+'.repeat(22);
    check([long, `${long}1`]);
    assert.throws(
      () => {
        check([`${long}1`, `${long}11`]);
      },
      { name: 'UserError', message: /shortest prompt has 45 tokens.* may have 20.* room for 64/ },
    );
    check([`${long}1`], { room: { maxContext: undefined, maxTokens: 20 } });
  });
});
