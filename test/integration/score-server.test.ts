import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { embeddedDataset, generateProblems } from '../../shared/tasks/countdown/generator.js';
import { ServiceProcess } from '../support/service-process.js';

const isListening = ({ msg }: { msg?: unknown }) => msg === 'listening';

describe('a score server, without NATS and without a run', { timeout: 60_000 }, () => {
  let server: ServiceProcess;
  let url: string;
  before(async () => {
    const rewards = ['--shaping', 'continuous', '--format-score', '0.2'];
    const flags = ['--http-port', '0', '--prompt-style', 'fewshot', ...rewards];
    server = new ServiceProcess('score-server', flags);
    const { httpPort } = await server.says(isListening);
    url = `http://127.0.0.1:${String(httpPort)}`;
  });
  after(() => server[Symbol.asyncDispose]());

  const post = async (body: unknown) => {
    const response = await fetch(`${url}/score`, { method: 'POST', body: JSON.stringify(body) });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };

  it('a score server scores any problem by its task', async () => {
    const problem = { nums: [3, 7, 21], target: 84 };
    const answer = (text: string) => post({ problem, completion: `<answer>${text}</answer>` });
    assert.equal((await answer('(7-3)*21')).body['exactReward'], '1');
    assert.equal((await answer('3*21+7')).body['exactReward'], '19/75'); // 1/5 + 4/5 · 1/15
    assert.equal((await answer('84')).body['exactReward'], '1/5');
    assert.equal((await post({ problem, completion: '(7-3)*21' })).body['reason'], 'no_answer');
  });

  it('a score server finds problems by their ids', async () => {
    const { problem, witness } = generateProblems({ ...embeddedDataset, trainSize: 1 }).test[0]!;
    const completion = `<answer>${witness}</answer>`;
    assert.equal((await post({ problemId: problem.id, completion })).body['reason'], 'correct');
    assert.equal((await post({ problemId: '1,1=3', completion })).status, 404);
  });

  it('a score server describes its API and counts requests', async () => {
    assert.equal((await fetch(`${url}/openapi.json`)).status, 200);
    const scores = 'reward_service_scores_total{reason="correct",source="http"}';
    assert((await server.metric(scores)) >= 1);
    assert.equal((await server.ask('/readyz')).status, 200);
  });

  it('a score server ends cleanly on SIGTERM', async () => {
    assert.equal(await server.stop('SIGTERM'), 0);
  });

  it('a score server needs a key to listen beyond loopback and requires it of clients', async () => {
    const beyond = ['--http-port', '0', '--http-host', '0.0.0.0'];
    await using open = new ServiceProcess('score-server', beyond);
    assert.equal(await open.exitCode(), 2);
    assert.match(open.errors, /--http-host .*give --http-key or --http-key-file, or --http-open/);

    const env = { SCORE_SERVER_HTTP_KEY: 'one-two-three-four' };
    await using guarded = new ServiceProcess('score-server', beyond, env);
    const { httpPort } = await guarded.says(isListening);
    const ask = async (headers: Record<string, string>) => {
      const body = JSON.stringify({ problem: { nums: [3, 7], target: 10 }, completion: '3+7' });
      const to = `http://127.0.0.1:${String(httpPort)}/score`;
      return (await fetch(to, { method: 'POST', body, headers })).status;
    };
    assert.equal(await ask({}), 401);
    assert.equal(await ask({ 'x-api-key': 'one-two-three-four' }), 200);
  });

  it('a score server refuses settings that its task does not use', async () => {
    const flags = ['--task', 'integer-answers', '--max-number', '30'];
    await using confused = new ServiceProcess('score-server', flags);
    assert.equal(await confused.exitCode(), 2);
    assert.match(
      confused.errors,
      /score-server cannot start:[^]*--max-number.*only --task countdown/,
    );
  });
});
