import { z } from 'zod';
import { EngineTwin, type TwinAnswer, twinFlags, type TwinFlags } from './engine-twin.js';

const SamplingParams = z.strictObject({
  temperature: z.number().nonnegative(),
  max_new_tokens: z.int().positive(),
  stop_token_ids: z.array(z.int()).default([]),
  stop: z.array(z.string()).optional(),
  top_p: z.literal(1),
  top_k: z.literal(-1),
  min_p: z.literal(0),
  presence_penalty: z.literal(0),
  frequency_penalty: z.literal(0),
  repetition_penalty: z.literal(1),
});
const Generate = z.strictObject({
  rid: z.string().min(1),
  input_ids: z.array(z.array(z.int().nonnegative()).min(1)).min(1), // [n, P]
  lora_path: z.string().optional(),
  extra_key: z.string().optional(),
  sampling_params: SamplingParams,
  return_logprob: z.literal(true),
  top_logprobs_num: z.int().nonnegative(),
  stream: z.literal(false),
});
const Load = z.strictObject({ lora_name: z.string().min(1), lora_path: z.string().min(1) });
const Unload = z.strictObject({ lora_name: z.string().min(1) });
const Abort = z.strictObject({ rid: z.string().min(1) });

/** SGLang's own routes, made from the sources of 0.5.5 and 0.5.23. */
export class SglangTwin extends EngineTwin {
  /** Ids of the sequences that are being drawn. */
  readonly drawing = new Set<string>();
  /** Those of them that were aborted. */
  readonly aborted: string[] = [];
  /** Sequences are drawn until then, if set. */
  holdsDrawing: Promise<void> | undefined;
  /** Changes an answer of the sampling route, to break it. */
  tamper: (sequences: { meta_info: Record<string, unknown> }[]) => unknown = (all) => all;

  static async start(flags: Partial<TwinFlags> = {}): Promise<SglangTwin> {
    return new SglangTwin({ ...twinFlags, ...flags }).start();
  }

  protected samples(path: string): boolean {
    return path === '/generate';
  }

  protected answer(method: string, path: string, body: unknown) {
    const { flags } = this;
    switch (`${method} ${path}`) {
      case 'GET /health':
        return {};
      case 'GET /get_server_info':
        return {
          json: {
            version: '0.5.23',
            enable_lora: flags.takesAdapters,
            max_loras_per_batch: flags.tellsSlots ? flags.slots : null,
            max_loaded_loras: null,
            context_length: null,
          },
        };
      case 'GET /v1/models':
        return { json: { data: this.#models() } };
      case 'GET /metrics':
        return flags.showsMetrics ? { text: this.#metrics() } : undefined;
      case 'POST /load_lora_adapter':
        return this.#load(Load.safeParse(body));
      case 'POST /unload_lora_adapter':
        return this.#unload(Unload.safeParse(body));
      case 'POST /generate':
        return this.#generate(Generate.safeParse(body));
      case 'POST /abort_request':
        return this.#abort(Abort.safeParse(body));
      default:
        return undefined;
    }
  }

  #models(): unknown[] {
    const adapters = Array.from(this.loaded, ([id, root]) => ({ id, root, parent: 'base' }));
    return [{ id: 'base', max_model_len: this.flags.maxContext }, ...adapters];
  }

  /** An id that it does not know is no error. */
  #abort({ data, error }: z.ZodSafeParseResult<z.output<typeof Abort>>): TwinAnswer {
    if (data === undefined) return wrong(String(error));
    if (this.drawing.has(data.rid)) this.aborted.push(data.rid);
    return {};
  }

  /** As 0.5.23 counts: in real time by mode, and what its usual totals say only once a request ends. */
  #metrics(): string {
    const { generated, prompt, running, finished } = this.counters;
    const labels = '{model_name="base",tp_rank="0"}';
    const live = [
      ['decode', generated],
      ['prefill_compute', 1 + prompt], // the prompt of its own warm-up
    ].filter(([, count]) => this.flags.countsLive && count !== 0); // a mode has a series from its first token on
    return [
      `sglang:num_running_reqs${labels} ${running}.0`,
      `sglang:num_queue_reqs${labels} 0.0`,
      `sglang:token_usage${labels} 0.25`,
      `sglang:prompt_tokens_total${labels} ${finished}.0`,
      `sglang:generation_tokens_total${labels} ${finished}.0`,
      ...live.map(
        ([mode, count]) =>
          `sglang:realtime_tokens_total{mode="${mode}",model_name="base",tp_rank="0"} ${count}.0`,
      ),
      '',
    ].join('\n');
  }

  async #load({ data, error }: z.ZodSafeParseResult<z.output<typeof Load>>): Promise<TwinAnswer> {
    if (data === undefined) return wrong(String(error));
    if (!this.flags.takesAdapters) {
      return failed('LoRA is not enabled. Please set `--enable-lora` to enable LoRA.');
    }
    const { lora_name: name, lora_path: folder } = data;
    if (this.loaded.has(name)) return failed(`LoRA with name ${name} already exists.`);
    const problem = await this.takeAdapter(name, folder);
    if (problem?.startsWith('No adapter') === true) {
      return failed(
        `Repo id must be in the form 'repo_name' or 'namespace/repo_name': '${folder}'.`,
      );
    }
    if (problem !== undefined) return failed(problem);
    return { json: { success: true, loaded_adapters: Object.fromEntries(this.loaded) } };
  }

  /** As 0.5.23, which joins the matrices of the attention, and adds k itself. */
  protected override problemOfAdapter(names: readonly string[]): string | undefined {
    const values = names
      .filter((name) => name.includes('q_proj'))
      .map((name) => name.replace('q_proj', 'v_proj'));
    const missing = values.find((name) => !names.includes(name));
    return missing === undefined ? undefined : `'${missing}'`;
  }

  #unload({ data, error }: z.ZodSafeParseResult<z.output<typeof Unload>>): TwinAnswer {
    if (data === undefined) return wrong(String(error));
    const { lora_name: name } = data;
    if (!this.loaded.delete(name)) return failed(`LoRA with name ${name} does not exist.`);
    return { json: { success: true, loaded_adapters: Object.fromEntries(this.loaded) } };
  }

  async #generate({
    data,
    error,
  }: z.ZodSafeParseResult<z.output<typeof Generate>>): Promise<TwinAnswer> {
    if (data === undefined) return wrong(String(error));
    const { lora_path: adapter, sampling_params: params, top_logprobs_num: top } = data;
    if (adapter !== undefined && !this.loaded.has(adapter)) {
      return wrong(
        `Got LoRA adapter that has never been loaded: ${adapter}\nAll loaded adapters: [].`,
      );
    }
    const { max_new_tokens: maxTokens, temperature, stop_token_ids: stops } = params;
    const prompts = data.input_ids;
    const count = prompts.length;
    const draw = { adapter, temperature, count, maxTokens, seed: 0, stopTokenIds: stops };
    const texts = { prompt: prompts[0]!, stopStrings: params.stop ?? [], mostProbable: top };
    const ids = prompts.map((_, i) => `${data.rid}_${i}`); // as a real one makes them
    for (const id of ids) this.drawing.add(id);
    await this.holdsDrawing;
    const drawn = await this.sample({ ...draw, ...texts });
    for (const id of ids) this.drawing.delete(id);
    const sequences = drawn.map(({ tokens, logprobs, stopReason, top: shown }, i) => ({
      text: '',
      output_ids: tokens,
      meta_info: {
        id: ids[i],
        finish_reason: { type: stopReason },
        output_token_logprobs: tokens.map((token, i) => [logprobs[i], token, null]),
        output_top_logprobs: shown.map((each) =>
          top === 0 ? null : each.map(({ token, logprob }) => [logprob, token, null]),
        ),
      },
    }));
    return { json: this.tamper(sequences) };
  }
}

function wrong(message: string): TwinAnswer {
  return { status: 400, json: { error: { message } } };
}

function failed(message: string): TwinAnswer {
  return { status: 400, json: { success: false, error_message: message } };
}
