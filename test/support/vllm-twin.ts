import { z } from 'zod';
import { EngineTwin, type TwinAnswer, twinFlags, type TwinFlags } from './engine-twin.js';

const SamplingParams = z.strictObject({
  n: z.int().positive(),
  seed: z.int().optional(),
  temperature: z.number().nonnegative(),
  max_tokens: z.int().positive(),
  stop_token_ids: z.array(z.int()).default([]),
  stop: z.array(z.string()).optional(),
  logprobs: z.int().nonnegative(),
  ignore_eos: z.boolean(),
  output_kind: z.literal(2), // 0.27 answers one sequence of several without it
  top_p: z.literal(1),
  top_k: z.literal(0),
  min_p: z.literal(0),
  presence_penalty: z.literal(0),
  frequency_penalty: z.literal(0),
  repetition_penalty: z.literal(1),
});
const Generate = z.strictObject({
  request_id: z.string().min(1),
  model: z.string(),
  token_ids: z.array(z.int().nonnegative()).min(1),
  sampling_params: SamplingParams,
  cache_salt: z.string().min(1),
});
const Load = z.strictObject({ lora_name: z.string().min(1), lora_path: z.string().min(1) });
const Unload = z.strictObject({ lora_name: z.string().min(1) });
const Abort = z.strictObject({ request_ids: z.array(z.string().startsWith('generate-tokens-')) });

/** vLLM's routes, as its documentation and vLLM 0.32.0 have them. */
export class VllmTwin extends EngineTwin {
  /** More lines of its metrics. */
  moreMetrics = '';
  /** Changes an answer of the sampling route, to break it. */
  tamper: (choices: Record<string, unknown>[]) => unknown = (choices) => choices;

  static async start(flags: Partial<TwinFlags> = {}): Promise<VllmTwin> {
    return new VllmTwin({ ...twinFlags, ...flags }).start();
  }

  protected samples(path: string): boolean {
    return path === '/inference/v1/generate';
  }

  protected answer(method: string, path: string, body: unknown) {
    const { flags } = this;
    switch (`${method} ${path}`) {
      case 'GET /health':
        return {};
      case 'GET /version':
        return { json: { version: '0.32.0' } };
      case 'GET /v1/models':
        return { json: { object: 'list', data: this.#models() } };
      case 'GET /server_info?config_format=json':
        if (!flags.tellsSlots) return undefined;
        return {
          json: {
            vllm_config: { lora_config: flags.takesAdapters ? { max_loras: flags.slots } : null },
          },
        };
      case 'GET /metrics':
        return flags.showsMetrics ? { text: this.#metrics() } : undefined;
      case 'POST /v1/load_lora_adapter':
        return flags.loadsAtRuntime ? this.#load(Load.safeParse(body)) : undefined;
      case 'POST /v1/unload_lora_adapter':
        return flags.loadsAtRuntime ? this.#unload(Unload.safeParse(body)) : undefined;
      case 'POST /inference/v1/generate':
        return this.#generate(Generate.safeParse(body));
      case 'GET /inference/v1/abort_requests':
        return flags.abortsCalls ? { status: 405, json: {} } : undefined;
      case 'POST /inference/v1/abort_requests':
        if (!flags.abortsCalls) return undefined;
        return Abort.safeParse(body).success ? {} : wrong('request_ids is missing');
      default:
        return undefined;
    }
  }

  /** In the words of vLLM 0.32.0. */
  #metrics(): string {
    const { generated, prompt, running, startedAt } = this.counters;
    const labels = '{engine="0",model_name="base"}';
    return [
      '# HELP vllm:num_requests_running Number of requests in model execution batches.',
      '# TYPE vllm:num_requests_running gauge',
      `vllm:num_requests_running${labels} ${running.toFixed(1)}`,
      `vllm:num_requests_waiting${labels} 0.0`,
      `vllm:kv_cache_usage_perc${labels} 0.25`,
      `vllm:num_preemptions_total${labels} 0.0`,
      `vllm:prompt_tokens_total${labels} ${prompt}.0`,
      `vllm:generation_tokens_total${labels} ${generated}.0`,
      'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="64"} 1.0',
      `process_start_time_seconds ${startedAt.toExponential(9)}`,
      this.moreMetrics,
    ].join('\n');
  }

  #models() {
    const base = { id: 'base', parent: null, max_model_len: this.flags.maxContext };
    const adapters = [...this.loaded].map(([id, root]) => ({ id, root, parent: 'base' }));
    return [base, ...adapters];
  }

  async #load({ data, error }: z.ZodSafeParseResult<z.output<typeof Load>>): Promise<TwinAnswer> {
    if (data === undefined) return wrong(String(error));
    const { lora_name: name, lora_path: folder } = data;
    if (this.loaded.has(name)) {
      return wrong(
        `The lora adapter '${name}' has already been loaded. If you want to load it again`,
      );
    }
    if (!this.flags.takesAdapters)
      return { status: 500, json: failure('LoRA is not enabled', 500) };
    const problem = await this.takeAdapter(name, folder);
    if (problem === undefined)
      return { text: `Success: LoRA adapter '${name}' added successfully.` };
    return problem.startsWith('No adapter')
      ? { status: 404, json: failure(problem, 404) }
      : wrong(problem);
  }

  #unload({ data, error }: z.ZodSafeParseResult<z.output<typeof Unload>>): TwinAnswer {
    if (data === undefined) return wrong(String(error));
    const { lora_name: name } = data;
    if (this.loaded.delete(name)) return { text: `Success: '${name}' removed successfully.` };
    return { status: 404, json: failure(`The lora adapter '${name}' cannot be found.`, 404) };
  }

  async #generate({
    data,
    error,
  }: z.ZodSafeParseResult<z.output<typeof Generate>>): Promise<TwinAnswer> {
    if (!this.flags.samplesByIds) {
      return { status: 403, json: { error: 'scale-out APIs need --enable-scale-out' } };
    }
    if (data === undefined) return wrong(String(error));
    const { model, token_ids: prompt, sampling_params: params } = data;
    if (model !== 'base' && !this.loaded.has(model)) {
      return { status: 404, json: failure(`The model \`${model}\` does not exist.`, 404) };
    }
    if (prompt.length + params.max_tokens > this.flags.maxContext) {
      return wrong(`This model's maximum context length is ${this.flags.maxContext} tokens.`);
    }
    const adapter = model === 'base' ? undefined : model;
    if (adapter !== undefined) this.#touch(adapter);
    const { n: count, max_tokens: maxTokens, temperature, seed = 0 } = params;
    const texts = { prompt, stopStrings: params.stop ?? [], stopTokenIds: params.stop_token_ids };
    const draw = { adapter, temperature, count, maxTokens, seed, ...texts };
    const sequences = await this.sample({ ...draw, mostProbable: params.logprobs });
    const named = (token: number) => ({ token: `token_id:${token}`, token_id: token });
    const choices = sequences.map(({ tokens, logprobs, stopReason, top }, index) => ({
      index,
      token_ids: tokens,
      finish_reason: stopReason,
      logprobs: {
        content: tokens.map((token, t) => ({
          ...{ ...named(token), logprob: logprobs[t], rank: 1 },
          top_logprobs: top[t]!.map((each) => {
            return { ...named(each.token), logprob: each.logprob, bytes: null };
          }),
        })),
      },
      weight_versions: [{ version: 'default', start: 0, end: tokens.length }],
    }));
    return { json: { request_id: 'generate-tokens-1', choices: this.tamper(choices) } };
  }

  /** The adapter is now the most recently used. */
  #touch(adapter: string): void {
    const folder = this.loaded.get(adapter)!;
    this.loaded.delete(adapter);
    this.loaded.set(adapter, folder);
  }
}

function wrong(message: string): TwinAnswer {
  return { status: 400, json: failure(message, 400) };
}

function failure(message: string, code: number): unknown {
  return { error: { message, type: 'BadRequestError', param: null, code } };
}
