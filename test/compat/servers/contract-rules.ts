import { losses, type LossName } from '../../../shared/rl/losses.js';
import { encodeForwardBackwardRequest } from '../../../shared/tinker/codec.js';
import type { PassedAnswer, PassedRequest, ServerRules } from '../../support/recording-proxy.js';
import {
  filled,
  isPass,
  jsonAnswer,
  jsonOf,
  modelOf,
  nameOf,
  only,
  passOf,
  textOf,
  withJson,
  withoutMetrics,
  withoutPrompt,
  type Json,
} from './bodies.js';
import type { Call, Contract, Refusal } from './contract.js';

/** What the rules know of an accepted operation, by the id of its future. */
interface Operation {
  readonly name: string;
  readonly model: string;
  readonly isForward: boolean;
}

const api = '/api/v1/';
/** Operations of a training run, which have sequence ids. */
const sequenced = new Set([
  'forward_backward',
  'optim_step',
  'save_weights',
  'save_weights_for_sampler',
  'load_weights',
]);

/** Plays the server of a contract in front of the local backend, so that training and sampling are real. */
export class ContractRules implements ServerRules {
  readonly #operations = new Map<string, Operation>(); // by the id of its future
  readonly #failing = new Map<string, string>(); // futures of our own, and their words
  readonly #sent = new Map<string, number>(); // operations that the backend got, by model
  readonly #begun = new Set<string>(); // models that had an operation
  readonly #saved = new Set<string>(); // names, with their model and kind
  readonly #samplers = new Map<string, string>(); // model of each sampling session
  readonly #newest = new Map<string, string>(); // sampling session of the newest weights, by model
  readonly #adams = new Map<string, Json>(); // settings of the first optimizer step, by model
  #session = '';
  #rank: number | undefined;

  constructor(
    private readonly contract: Contract,
    private readonly backend: { readonly url: string; readonly apiKey: string },
  ) {}

  request(given: PassedRequest): Promise<PassedRequest | PassedAnswer> {
    return Promise.resolve(this.#turn(given));
  }

  async answer(
    given: PassedRequest,
    sent: PassedRequest,
    answer: PassedAnswer,
  ): Promise<PassedAnswer> {
    const call = this.#call(given);
    if (typeof call === 'number') return answer;
    const name = nameOf(given);
    const json = answer.type.startsWith('application/json') ? jsonOf(answer.body) : undefined;
    if (answer.status >= 400) {
      const words = textOf(json, 'detail') || answer.body.toString();
      return this.#refusal({ status: answer.status, words });
    }
    if (name === 'retrieve_future') return this.#result(given, call, answer, json);
    if (json === undefined) return answer;
    if (name === 'create_session') this.#session = textOf(json, 'session_id');
    if (name === 'create_sampling_session') {
      const [, model = ''] =
        /^tinker:\/\/([^/]+)/.exec(textOf(jsonOf(given.body), 'model_path')) ?? [];
      this.#samplers.set(textOf(json, 'sampling_session_id'), model);
    }
    if (typeof json['request_id'] === 'string') {
      const isForward = isPass(name) && passOf(sent).isForwardOnly;
      const model = modelOf(sent);
      this.#operations.set(json['request_id'], { name, model, isForward });
    }
    const { modelFields } = call;
    if (modelFields !== undefined) {
      const models = json['supported_models'] as Json[];
      return jsonAnswer(200, { supported_models: models.map((one) => only(one, modelFields)) });
    }
    if (call.cursor === false) return jsonAnswer(200, only(json, ['checkpoints']));
    return answer;
  }

  #turn(given: PassedRequest): PassedRequest | PassedAnswer {
    const call = this.#call(given);
    if (typeof call === 'number') {
      return this.#refusal({
        status: call,
        words: call === 404 ? 'Not Found' : 'Method Not Allowed',
      });
    }
    if (call.answer !== undefined) return jsonAnswer(200, call.answer);
    const name = nameOf(given);
    if (isPass(name)) return this.#pass(given, call);
    if (!given.isJson) return given;
    const json = jsonOf(given.body);
    if (name === 'retrieve_future') return this.#ownFuture(json, call) ?? given;
    if (name === 'create_model') return this.#model(given, json, call);
    if (name === 'asample') return this.#sample(given, json, call);
    return sequenced.has(name) ? this.#operate(given, json, call) : given;
  }

  /** Its rules; 404 if the server does not have the path, 405 if only with another method. */
  #call({ method, path }: PassedRequest): Call | 404 | 405 {
    const bare = path.replace(/\?.*$/, '').slice(api.length);
    const matching = Object.entries(this.contract.calls).filter(([call]) => {
      const [, pattern = ''] = call.split(' ');
      return new RegExp(`^${pattern.replace(/:\w+/g, '[^/]+').replace('*', '.+')}$`).test(bare);
    });
    if (matching.length === 0) return 404;
    return matching.find(([call]) => call.startsWith(`${method} `))?.[1] ?? 405;
  }

  #pass(given: PassedRequest, call: Call): PassedRequest | PassedAnswer {
    const { pass } = call;
    if (pass === undefined) throw new Error(`${given.path} has no rules for passes`);
    if (!pass.bodies.includes(given.isJson ? 'json' : 'protobuf')) {
      return this.#refusal({ status: 415, words: 'unsupported content type' });
    }
    const request = passOf(given);
    const early = this.#sequenceRefusal(request.seqId);
    if (early !== undefined) return early;
    const { loss, config } = request;
    const rule = pass.losses[loss as LossName];
    if (rule === undefined) throw new Error(`the contract says nothing of the loss ${loss}`);
    if ('status' in rule) return this.#refusal(rule);
    this.#begun.add(request.modelId);
    if ('fails' in rule) return this.#fail(rule.fails);

    const ignored = [...rule.ignores, ...Object.keys(rule.settings)];
    const refused = Object.keys(config).find((key) => ![...rule.allows, ...ignored].includes(key));
    if (refused !== undefined) {
      if (pass.refusedSettings === undefined) throw new Error(`nothing is said of ${refused}`);
      return this.#refusal(pass.refusedSettings, { loss, setting: refused });
    }
    const inputs = losses[loss as LossName].inputs as readonly string[];
    const unread = Object.keys(request.data[0]?.inputs ?? {}).find((key) => !inputs.includes(key));
    if (unread !== undefined && pass.unreadInputs !== undefined) {
      return this.#fail(filled(pass.unreadInputs, { loss, input: unread }));
    }
    const kept = Object.entries(config).filter(([key]) => !ignored.includes(key));
    const sent = {
      ...request,
      seqId: this.#nextId(request.modelId),
      config: { ...Object.fromEntries(kept), ...rule.settings },
    };
    const body = Buffer.from(encodeForwardBackwardRequest(sent));
    return { ...given, isJson: false, path: `${api}forward_backward`, body };
  }

  #operate(given: PassedRequest, json: Json, call: Call): PassedRequest | PassedAnswer {
    const early = this.#sequenceRefusal(Number(json['seq_id']));
    if (early !== undefined) return early;
    const model = textOf(json, 'model_id');
    const isFirst = !this.#begun.has(model);
    this.#begun.add(model);
    const values = { model, name: textOf(json, 'path'), seq: textOf(json, 'seq_id') };
    if (call.onlyFirst !== undefined && !isFirst) return this.#refusal(call.onlyFirst, values);
    if (call.again !== undefined) {
      const place = `${nameOf(given)} ${model}/${values.name}`;
      if (this.#saved.has(place)) {
        const { again } = call;
        return 'fails' in again
          ? this.#fail(filled(again.fails, values))
          : this.#refusal(again, values);
      }
      this.#saved.add(place);
    }
    return withJson(given, {
      ...json,
      seq_id: this.#nextId(model),
      ...(json['adam_params'] !== undefined && { adam_params: this.#adam(model, json, call) }),
    });
  }

  #adam(model: string, json: Json, call: Call): Json {
    const given = json['adam_params'] as Json;
    const ignored = call.ignoredSettings ?? [];
    const kept = Object.entries(given).filter(([key]) => !ignored.includes(key));
    const adam = Object.fromEntries(kept);
    if (call.keepsFirst !== true) return adam;
    const first = this.#adams.get(model) ?? adam;
    this.#adams.set(model, first);
    return { ...first, learning_rate: adam['learning_rate'] };
  }

  #model(given: PassedRequest, json: Json, call: Call): PassedRequest | PassedAnswer {
    const { rank, seed } = json['lora_config'] as { rank: number; seed?: number | null };
    if (call.seeded !== undefined && typeof seed === 'number') return this.#refusal(call.seeded);
    this.#rank ??= rank;
    if (call.ranks !== undefined && rank !== this.#rank) return this.#fail(call.ranks);
    if (call.seeded === undefined) return given;
    // The server draws the adapter itself: here the same one each time, so that runs can be compared.
    return withJson(given, { ...json, lora_config: { ...(json['lora_config'] as Json), seed: 3 } });
  }

  #sample(given: PassedRequest, json: Json, call: Call): PassedRequest | PassedAnswer {
    const { maxSamples } = call;
    if (maxSamples !== undefined && Number(json['num_samples']) > maxSamples.most) {
      return this.#refusal(maxSamples);
    }
    if (call.samplesNewest !== true) return given;
    const model = this.#samplers.get(textOf(json, 'sampling_session_id')) ?? '';
    const newest = this.#newest.get(model) ?? json['sampling_session_id'];
    return withJson(given, { ...json, sampling_session_id: newest });
  }

  async #result(
    given: PassedRequest,
    call: Call,
    answer: PassedAnswer,
    json: Json | undefined,
  ): Promise<PassedAnswer> {
    const id = textOf(jsonOf(given.body), 'request_id');
    const operation = this.#operations.get(id);
    if (json?.['type'] === 'try_again') {
      return call.pending ? jsonAnswer(call.pending.status, call.pending.body) : answer;
    }
    if (json?.['category'] !== undefined) return this.#failure(call, json);
    if (operation === undefined) return answer;
    const { name, model, isForward } = operation;
    const rules = this.contract.calls[`POST ${name}`];
    if (isPass(name)) {
      const reports = rules?.pass?.reports ?? [];
      return reports.includes(isForward ? 'forward' : 'forward_backward')
        ? answer
        : withoutMetrics(answer, json);
    }
    if (name === 'optim_step' && rules?.metrics !== undefined && json !== undefined) {
      const found = Object.entries((json['metrics'] ?? {}) as Json).flatMap(([key, value]) => {
        const theirs = rules.metrics?.[key];
        return theirs === undefined ? [] : [[theirs, value] as const];
      });
      return jsonAnswer(200, { metrics: Object.fromEntries(found) });
    }
    if (name === 'save_weights_for_sampler' && json !== undefined) {
      const path = textOf(json, 'path');
      await this.#remember(model, path);
      const values = { model, name: path.split('/').at(-1)! };
      return rules?.path === undefined
        ? answer
        : jsonAnswer(200, { ...json, path: filled(rules.path, values) });
    }
    return name === 'asample' && rules?.promptLogprobs === false
      ? withoutPrompt(answer, json)
      : answer;
  }

  /** Opens a sampling session for weights that all sessions of their run sample with from now on. */
  async #remember(model: string, model_path: string): Promise<void> {
    if (this.contract.calls['POST asample']?.samplesNewest !== true) return;
    const sampling_session_seq_id = 1_000_000 + this.#newest.size + this.#saved.size;
    const body = { session_id: this.#session, sampling_session_seq_id, model_path };
    const response = await fetch(`${this.backend.url}${api}create_sampling_session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': this.backend.apiKey },
      body: JSON.stringify(body),
    });
    const { sampling_session_id: id } = (await response.json()) as Json;
    if (typeof id !== 'string') throw new Error(`no sampling session: ${response.status}`);
    this.#newest.set(model, id);
  }

  #ownFuture(json: Json, call: Call): PassedAnswer | undefined {
    const id = textOf(json, 'request_id');
    const words = this.#failing.get(id);
    if (words !== undefined) return this.#failure(call, { error: words, category: 'user' });
    if (call.unknown === undefined || this.#operations.has(id)) return undefined;
    return jsonAnswer(call.unknown.status, call.unknown.body);
  }

  #failure(call: Call, json: Json): PassedAnswer {
    if (call.failed === undefined) return jsonAnswer(200, json);
    const { status, field, more } = call.failed;
    return jsonAnswer(status, { ...more, [field]: json['error'] });
  }

  #fail(words: string): PassedAnswer {
    const id = `failing-${this.#failing.size}`;
    this.#failing.set(id, words);
    return jsonAnswer(200, { request_id: id });
  }

  #sequenceRefusal(seqId: number): PassedAnswer | undefined {
    const { least, refusal } = this.contract.sequenceIds;
    if (seqId >= least || refusal === undefined) return undefined;
    return this.#refusal({ status: 400, words: refusal });
  }

  #nextId(model: string): number {
    const id = (this.#sent.get(model) ?? 0) + 1;
    this.#sent.set(model, id);
    return id;
  }

  #refusal(
    { status, words }: Pick<Refusal, 'status' | 'words'>,
    values: Readonly<Record<string, string>> = {},
  ): PassedAnswer {
    const text = filled(words, values);
    const { field } = this.contract.errors;
    // FastAPI's validation errors are a list.
    const isList = status === 422 && field === 'detail';
    const what = isList
      ? [{ type: 'value_error', loc: ['forward_backward_input'], msg: text }]
      : text;
    return jsonAnswer(status, { [field]: what });
  }
}
