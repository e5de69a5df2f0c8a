import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupRequest, rolloutGroup } from '../../actor/group-messages.js';
import { problemOf } from '../../shared/tasks/countdown/problem.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { countdown } from '../../shared/tasks/countdown/task.js';
import { PermanentError } from '../../shared/base/errors.js';
import { decode, encode, WireError } from '../../shared/wire/codec.js';
import { notFinite } from '../../shared/wire/death-cause.js';
import { type Rollout, RolloutGroup, tokenCount } from '../../shared/wire/rollout-group.js';
import { countdownSpec } from '../support/countdown-task.js';
import { rollout, ticket } from '../support/messages.js';

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

const groupOf = (...rollouts: Rollout[]) =>
  rolloutGroup({
    ticket: ticket({ groupSize: 2 }),
    actor: 'actor-0',
    prompt: Int32Array.of(1, 2),
    rollouts,
    startedAt: 1_000,
    finishedAt: 1_500,
  });

describe('the message of a sampled group', () => {
  it('a sampled group arrives as it was sampled', () => {
    const group = groupOf(rollout(), rollout(3, { stopReason: 'length' }));
    assert.deepEqual(decode(RolloutGroup, 'rollouts', encode(RolloutGroup, group)), group);
    assert.equal(tokenCount(group), 6);
  });

  it('a sampled group has no logprob above 0', () => {
    const certain = rollout(3, { behaviorLogprobs: Float32Array.of(1e-7, -0.25, 0) });
    assert.deepEqual(
      groupOf(certain, rollout()).rollouts[0]!.behaviorLogprobs,
      Float32Array.of(0, -0.25, 0),
    );
  });

  for (const broken of [NaN, -Infinity, Infinity]) {
    it(`a sampled group is refused with a logprob of ${broken}, naming the version that drew it`, () => {
      const logprobs = Float32Array.of(-0.5, -0.25, broken);
      const versions: [number, number][] = [
        [4, 2],
        [7, 1],
      ];
      const bad = rollout(3, { behaviorLogprobs: logprobs, versions });
      assert.throws(() => groupOf(rollout(), bad), notFinite(7));
    });
  }

  it('a sampled group is not sent with a rollout missing', () => {
    assert.throws(() => encode(RolloutGroup, groupOf(rollout())), WireError);
  });
});
