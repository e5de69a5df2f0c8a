import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupRequest, rolloutGroup } from '../../../actor/group-messages.js';
import { Decoder } from '../../../shared/model/decoder.js';
import { noAdapter } from '../../../shared/model/lora.js';
import { readWeights } from '../../../shared/model/model-weights.js';
import { Scorer } from '../../../shared/model/scorer.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { styles } from '../../../shared/tasks/countdown/prompts.js';
import { countdown } from '../../../shared/tasks/countdown/task.js';
import { CountdownPrompt } from '../../../shared/tasks/countdown/spec.js';
import { createJudge } from '../../../reward-service/judge.js';
import { frozen } from '../../../shared/model/weight-source.js';
import { chatModel } from '../../support/chat-model.js';
import { countdownSpec } from '../../support/countdown-task.js';
import { ticket } from '../../support/messages.js';

describe('an answer whose end spans tokens', async () => {
  await using model = await chatModel();
  const weights = await readWeights(model);
  const tokenizer = await loadTokenizer(model);
  const decoder = new Decoder(
    model.config,
    () => Promise.resolve(frozen(weights)),
    1,
    () => Promise.resolve(tokenizer),
  );
  const scorer = new Scorer(model.config, weights, 1);
  const adapter = noAdapter;
  const spec = countdownSpec({ prompt: CountdownPrompt.parse(styles.fewshot.zh) });
  const task = countdown.open(spec);
  const dataset = await task.load();
  const problem = dataset.train[0]!;
  const sampling = { temperature: 1, maxTokens: 400 };
  const run = { task: spec, groupSize: 2, sampling };
  const judge = createJudge(run, dataset, tokenizer, model.config.vocabSize);
  const asked = ticket({
    problemId: problem.id,
    samplingParams: { ...sampling, seed: 3 },
  });

  /** The group whose answers are these tokens, as far as they are sampled. */
  async function answered(answer: Int32Array) {
    const maxContext = model.config.maxPositions;
    const request = groupRequest(asked, { task, dataset, tokenizer, maxContext });
    const forced = new Int32Array(request.maxTokens).fill(tokenizer.encode('z')[0]!);
    forced.set(answer);
    const policy = () => ({ version: 0, adapter });
    const rollouts = await decoder.sampleGroup({ ...request, forced }, policy);
    const times = { startedAt: 0, finishedAt: 1 };
    return rolloutGroup({ ticket: asked, actor: 'a', prompt: request.prompt, rollouts, ...times });
  }

  const right = `<answer>${problem.solution!}</answer>`;
  const { encode } = tokenizer;
  /** As a policy may spell it, though the tokenizer would not. */
  const byCharacter = (text: string) => Int32Array.from(text, (char) => encode(char)[0]!);
  const thoughts = '想一想。'.repeat(25);
  const cases: [name: string, answer: Int32Array, kept: string][] = [
    ['several tokens', encode(`好${right}还有`), `好${right}`],
    ['a token for each character', byCharacter(`so ${right} and`), `so ${right}`],
    ['a token that goes on', encode(`${right}</b>`), `${right}</`],
    ['hundreds of tokens of thought', encode(`${thoughts}${right} z`), `${thoughts}${right}`],
    [
      'an answer before the last',
      encode(`<answer>1</answ> ${right}z`),
      `<answer>1</answ> ${right}`,
    ],
  ];
  for (const [name, answer, kept] of cases) {
    it(`the answer ends with the token that completes its stop, each token with its logprob: ${name}`, async () => {
      const { promptTokens, rollouts } = await answered(answer);
      for (const { tokens, behaviorLogprobs, stopReason } of rollouts) {
        assert.equal(tokenizer.decode(tokens), kept);
        assert.deepEqual([...tokens], [...answer.subarray(0, tokens.length)]);
        assert.equal(stopReason, 'stop');
        // The trainer reads prompt and answer as one sequence, and finds the logprobs that sampling found.
        const whole = Int32Array.of(...promptTokens, ...tokens);
        const [scored] = await scorer.logprobs([whole.slice(0, -1)], [whole.slice(1)], adapter, 1);
        scored!.subarray(promptTokens.length - 1).forEach((logprob, i) => {
          assert(Math.abs(logprob - behaviorLogprobs[i]!) < 1e-4, `token ${i} of ${tokens.length}`);
        });
      }
    });

    it(`the answer is found and earns its reward: ${name}`, async () => {
      const [score] = judge.scoreGroup(await answered(answer));
      assert.deepEqual([score!.isCorrect, score!.hasFormat], [true, true], score!.reason);
    });
  }

  it('an answer that does not end is cut at the limit, and says so', async () => {
    const group = await answered(encode('<answer>1+2</answ'));
    for (const { tokens, behaviorLogprobs, stopReason } of group.rollouts) {
      assert.deepEqual([tokens.length, behaviorLogprobs.length, stopReason], [400, 400, 'length']);
    }
    const [score] = judge.scoreGroup(group);
    assert.deepEqual([score!.hasFormat, score!.reason], [false, 'no_answer']);
  });
});
