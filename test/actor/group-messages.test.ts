import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupRequest } from '../../actor/group-messages.js';
import { problemOf } from '../../shared/tasks/countdown/problem.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { countdown } from '../../shared/tasks/countdown/task.js';
import { PermanentError } from '../../shared/base/errors.js';
import { countdownSpec } from '../support/countdown-task.js';
import { ticket } from '../support/messages.js';

const problem = { ...problemOf([3, 7, 21], 64), id: 'p-0' };
const source = {
  dataset: { problem: (id: string) => (id === problem.id ? problem : undefined) },
  task: countdown.open(countdownSpec()),
  tokenizer: {
    encode: (text: string) => Int32Array.from(text, (char) => char.charCodeAt(0)),
    chatText: () => '',
    beginning: [],
    eosTokenIds: [2],
  },
  maxContext: 64,
};

describe('the sampling request of a ticket', () => {
  it('a sampling request has the prompt of the problem and the sampling parameters of the ticket', () => {
    const { prompt, ...rest } = groupRequest(ticket(), source);
    assert.equal(String.fromCharCode(...prompt), '3 7 21=64:');
    const params = { count: 2, temperature: 1, maxTokens: 16, seed: 7 };
    assert.deepEqual(rest, { ...params, stopTokenIds: [2], stopStrings: [] });
  });

  it('a sampling request has the stop strings of the prompt style', () => {
    const task = countdown.open(countdownSpec({ prompt: styles.fewshot.en }));
    const { stopStrings } = groupRequest(ticket(), { ...source, task, maxContext: undefined });
    assert.deepEqual(stopStrings, ['</answer>']);
  });

  it('a ticket is refused when its problem is unknown', () => {
    const unknown = ticket({ ticketId: 't-9', problemId: 'nowhere' });
    assert.throws(
      () => groupRequest(unknown, source),
      (error: unknown) => error instanceof PermanentError && /t-9.*nowhere/.test(error.message),
    );
  });

  it('a sampling request may fill the context to its last token but not exceed it', () => {
    const room = source.maxContext - '3 7 21=64:'.length;
    const params = { temperature: 1, seed: 7 };
    const fits = ticket({ samplingParams: { ...params, maxTokens: room } });
    assert.equal(groupRequest(fits, source).maxTokens, room);
    const over = ticket({ samplingParams: { ...params, maxTokens: room + 1 } });
    assert.throws(() => groupRequest(over, source), PermanentError);
    assert.equal(groupRequest(over, { ...source, maxContext: undefined }).maxTokens, room + 1);
  });
});
