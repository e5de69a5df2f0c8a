import { decodeForwardBackwardRequest } from '../../shared/tinker/codec.js';
import { forwardBackwardType } from '../../shared/tinker/result-types.js';
import type { ForwardBackwardRequest } from '../../shared/tinker/types.js';
import { decode } from '../../shared/wire/codec.js';
import { Checkpoint } from '../../shared/wire/ledger.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { RunEvent } from '../../shared/wire/run-event.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { AdamParams } from '../../shared/rl/adam-params.js';
import type { Exchange } from '../support/recording-proxy.js';
import { keyOfData } from './group-key.js';
import type { Operation } from './lineage.js';
import type { Published } from './nats-frames.js';

/** An operation that the backend has answered, with enough of its request to repeat it. */
export interface Recorded extends Operation {
  readonly pass?: ForwardBackwardRequest;
  readonly lossSum?: number; // of a pass, as the backend answered
  readonly adam?: AdamParams;
}

/** A group as an actor sent it. */
export interface Delivered {
  readonly group: RolloutGroup;
  readonly msgId: string | undefined;
}

/** Records the services' messages and the learners' backend requests, across deaths of processes. */
export class Witness {
  readonly issued = new Set<number>();
  readonly delivered: Delivered[] = [];
  readonly scored: ScoredGroup[] = [];
  readonly tickets: Ticket[] = [];
  /** The answered operations. */
  readonly operations: Recorded[] = [];
  /** Called with each checkpoint that a learner writes and each optimizer step that the backend answers. */
  onLearner: (
    heard: { readonly kind: 'checkpoint'; readonly step: number } | { readonly kind: 'trained' },
  ) => void = () => undefined;
  readonly #asked = new Map<string, Recorded>(); // by request id, not answered yet
  readonly #stepEvents = new Set<string>(); // message ids

  constructor(
    private readonly run: string,
    private readonly groupSize: number,
  ) {}

  /** Steps that learners reported, including those lost later; a repeated report counts once. */
  get steps(): number {
    return this.#stepEvents.size;
  }

  hearPublished(message: Published): void {
    try {
      this.#hear(message);
    } catch {
      // Garbage, or a body in the object store: the services must handle it and report it themselves.
    }
  }

  #hear({ subject, headers, data }: Published): void {
    if (subject === `$KV.ledger_${this.run}.checkpoint`) {
      this.onLearner({ kind: 'checkpoint', step: decode(Checkpoint, subject, data).step });
      return;
    }
    const what = subject.replace(`offbeat.${this.run}.`, '');
    const msgId = /^Nats-Msg-Id: *(\S+)/im.exec(headers)?.[1];
    if (what === 'tickets.train') {
      const ticket = decode(Ticket, subject, data);
      this.issued.add(ticket.order);
      this.tickets.push(ticket);
    } else if (what.startsWith('rollouts.')) {
      this.delivered.push({ group: decode(RolloutGroup, subject, data), msgId });
    } else if (what.startsWith('scored.')) {
      this.scored.push(decode(ScoredGroup, subject, data));
    } else if (what === 'events.step') {
      const event = decode(RunEvent, subject, data);
      this.#stepEvents.add(msgId ?? `${event.at}`);
    }
  }

  /** A request to the backend and its answer. An operation counts once its result was delivered. */
  hearExchange({ operation, body, isJson, status, answer, answerIsJson }: Exchange): void {
    if (status < 200 || status > 299) return;
    const json = answerIsJson ? (JSON.parse(answer.toString()) as Answer) : {};
    if (operation !== 'retrieve_future') {
      const asked = this.#read(operation, body, isJson);
      if (asked !== undefined && json.request_id !== undefined)
        this.#asked.set(json.request_id, asked);
      return;
    }
    const id = (JSON.parse(body.toString()) as Answer).request_id ?? '';
    const asked = this.#asked.get(id);
    const isResult = json.type !== 'try_again' && json.error === undefined;
    if (asked === undefined || !isResult) return;
    this.#asked.delete(id);
    if (asked.kind === 'step') this.onLearner({ kind: 'trained' });
    const lossSum = asked.kind === 'pass' ? lossOf(answer, answerIsJson) : undefined;
    this.operations.push({ ...asked, ...(lossSum !== undefined && { lossSum }) });
  }

  #read(operation: string, body: Buffer, isJson: boolean): Recorded | undefined {
    if (operation === 'forward_backward' && !isJson) {
      const pass = decodeForwardBackwardRequest(body);
      if (pass.isForwardOnly) return undefined;
      const groups: string[] = [];
      for (let i = 0; i < pass.data.length; i += this.groupSize) {
        groups.push(keyOfData(pass.data.slice(i, i + this.groupSize)));
      }
      const { modelId: model, seqId: seq } = pass;
      return { model, seq, kind: 'pass', groups, pass };
    }
    if (!isJson || !Object.hasOwn(kinds, operation)) return undefined;
    const json = JSON.parse(body.toString()) as Asked;
    const { model_id: model, seq_id: seq, path: name, adam_params } = json;
    return {
      ...{ model, seq, kind: kinds[operation as keyof typeof kinds] },
      ...(name !== undefined && { name }),
      ...(adam_params !== undefined && { adam: ownNames(adam_params) }),
    };
  }
}

interface Asked {
  readonly model_id: string;
  readonly seq_id: number;
  readonly path?: string;
  readonly adam_params?: Readonly<Record<string, number>>;
}

interface Answer {
  readonly request_id?: string;
  readonly type?: string;
  readonly error?: unknown;
}

const kinds = {
  optim_step: 'step',
  save_weights: 'state',
  save_weights_for_sampler: 'policy',
  load_weights: 'load',
} as const;

function lossOf(answer: Buffer, isJson: boolean): number | undefined {
  const { json, protobuf } = forwardBackwardType;
  const result = isJson ? json.parse(JSON.parse(answer.toString())) : protobuf!(answer);
  return result.metrics['loss:sum'];
}

/** Maps our names of AdamW's settings to Tinker's. */
function ownNames(params: Readonly<Record<string, number>>): AdamParams {
  return AdamParams.parse({
    learningRate: params['learning_rate'],
    beta1: params['beta1'],
    beta2: params['beta2'],
    eps: params['eps'],
    weightDecay: params['weight_decay'],
    gradClipNorm: params['grad_clip_norm'],
  });
}
