import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  hasWorked,
  isAnotherProcess,
  readEngineMetrics,
  sglangMetrics,
  unknownIn,
  vllmMetrics,
} from '../../../shared/engine/engine-metrics.js';

/** As vLLM 0.32.0 with two engines in one server prints them, without what is not read. */
const text = `
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="base"} 3.0
vllm:num_requests_running{engine="1",model_name="a \\"b\\" {c}"} 4.0
vllm:num_requests_waiting{engine="0",model_name="base"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="base"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="base"} 0.5
vllm:num_preemptions_total{engine="0",model_name="base"} 2.0
vllm:num_preemptions_created{engine="0",model_name="base"} 1.79e+09
vllm:generation_tokens_total{engine="0",model_name="base"} 1.5e+03
vllm:prompt_tokens_total{engine="0",model_name="base"} 700.0
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="100"} 1.0
process_start_time_seconds 1.78e+09
`;

describe('the metrics of an engine', () => {
  const metrics = readEngineMetrics(text, vllmMetrics);

  it('counts of the parts of a server are added up, and of usages the largest counts', () => {
    assert.deepEqual(metrics, {
      ...{ running: 7, waiting: 1, kvUsage: 0.5, kvTokens: 1_600, preemptions: 2 },
      ...{ generatedTokens: 1_500, promptTokens: 700, startedAt: 1.78e9, parts: 2 },
    });
    assert.deepEqual(unknownIn(metrics), []);
  });

  it('the engines of a server are told apart by their number, not by their models', () => {
    const oneEngine = text.replaceAll('engine="1"', 'engine="0"');
    assert.equal(readEngineMetrics(oneEngine, vllmMetrics).parts, 1);
    const unnumbered = text.replaceAll(/engine="\d",/g, '');
    assert.equal(readEngineMetrics(unnumbered, vllmMetrics).parts, 1);
  });

  it('what is missing or makes no sense is unknown', () => {
    const odd = readEngineMetrics(
      'vllm:num_requests_running{engine="0"} NaN\nvllm:kv_cache_usage_perc 25\nvllm:num_requests_waiting -1\nvllm:generation_tokens_total\nnonsense',
      vllmMetrics,
    );
    assert.deepEqual(new Set(Object.values(odd)), new Set([undefined]));
    assert.deepEqual(unknownIn(odd), ['running', 'waiting', 'kvUsage', 'generatedTokens']);
    assert.deepEqual(readEngineMetrics(text, sglangMetrics).running, undefined);
  });

  it('SGLang counts tokens by mode as it draws them, a mode without a series as none', () => {
    const sglang = `
sglang:generation_tokens_total{model_name="base"} 7.0
sglang:realtime_tokens_total{mode="prefill_cache",model_name="base"} 900.0
sglang:realtime_tokens_total{mode="prefill_compute",model_name="base"} 300.0
`;
    const { generatedTokens, promptTokens } = readEngineMetrics(sglang, sglangMetrics);
    assert.deepEqual([generatedTokens, promptTokens], [0, 300]);
    const decode = `${sglang}sglang:realtime_tokens_total{dp_rank="1",mode="decode"} 40.0\n`;
    assert.equal(readEngineMetrics(decode, sglangMetrics).generatedTokens, 40);
    const older = readEngineMetrics('sglang:generation_tokens_total 7.0\n', sglangMetrics);
    assert.equal(older.generatedTokens, undefined);
  });

  it('the cache of keys and values is what the server says, before what its blocks make', () => {
    const told = text.replace('tokens="None"', 'tokens="1234"');
    assert.equal(readEngineMetrics(told, vllmMetrics).kvTokens, 1_234);
  });

  it('another process is known by its start, or by a counter that fell', () => {
    assert(!isAnotherProcess(metrics, metrics));
    assert(!isAnotherProcess(metrics, { ...metrics, generatedTokens: 1_501, running: 0 }));
    assert(isAnotherProcess(metrics, { ...metrics, startedAt: 1.79e9 }));
    const silent = { ...metrics, startedAt: undefined };
    assert(isAnotherProcess(silent, { ...silent, promptTokens: 699 }));
    assert(!isAnotherProcess(silent, { ...silent, promptTokens: undefined }));
  });

  it('a server has worked if it has read or drawn a token', () => {
    assert.equal(hasWorked(metrics, metrics), false);
    assert.equal(hasWorked(metrics, { ...metrics, generatedTokens: 1_501 }), true);
    assert.equal(hasWorked(metrics, { ...metrics, promptTokens: 701 }), true);
    const none = { ...metrics, generatedTokens: undefined, promptTokens: undefined };
    assert.equal(hasWorked(none, metrics), undefined);
  });
});
