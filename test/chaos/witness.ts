import { createHash } from 'node:crypto';
import { datumOf } from '../../learner/step/datums.js';
import { isUniform } from '../../shared/rl/zero-variance.js';
import { decodeForwardBackwardRequest } from '../../shared/tinker/codec.js';
import type { Datum, ForwardBackwardRequest } from '../../shared/tinker/types.js';
import { decode } from '../../shared/wire/codec.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { AdamParams } from '../../shared/wire/run-config.js';
import type { ScoredSeen } from './audit.js';
import type { Operation } from './lineage.js';
import type { Published } from './nats-frames.js';

/** What the backend was told of one operation, enough to ask for it again. */
export interface Recorded extends Operation {
  readonly pass?: ForwardBackwardRequest;
  readonly adam?: AdamParams;
}

/** Hears what the services publish and what the learners ask of the backend, whoever dies meanwhile. */
export class Witness {
  readonly issued = new Set<number>();
  readonly scored = new Map<string, ScoredSeen>();
  readonly operations: Recorded[] = [];
  /** Messages to be sent once more. */
  readonly tickets: Ticket[] = [];
  readonly groups: RolloutGroup[] = [];
  readonly judged: ScoredGroup[] = [];

  constructor(
    private readonly run: string,
    private readonly groupSize: number,
  ) {}

  hearPublished({ subject, data }: Published): void {
    const what = subject.replace(`offbeat.${this.run}.`, '');
    if (what === 'tickets.train') {
      const ticket = decode(Ticket, subject, data);
      this.issued.add(ticket.order);
      remember(this.tickets, ticket);
    } else if (what.startsWith('rollouts.')) {
      remember(this.groups, decode(RolloutGroup, subject, data));
    } else if (what === 'scored.train') {
      const scored = decode(ScoredGroup, subject, data);
      this.scored.set(keyOfScored(scored), seen(scored));
      remember(this.judged, scored);
    }
  }

  hearAsked(operation: string, body: Buffer, isJson: boolean): void {
    if (operation === 'forward_backward' && !isJson) {
      const pass = decodeForwardBackwardRequest(body);
      if (pass.isForwardOnly) return;
      const groups: string[] = [];
      for (let i = 0; i < pass.data.length; i += this.groupSize) {
        groups.push(keyOf(pass.data.slice(i, i + this.groupSize)));
      }
      const { modelId: model, seqId: seq } = pass;
      this.operations.push({ model, seq, kind: 'pass', groups, pass });
      return;
    }
    if (!isJson || !Object.hasOwn(kinds, operation)) return;
    const json = JSON.parse(body.toString()) as Asked;
    const { model_id: model, seq_id: seq, path: name, adam_params } = json;
    const kind = kinds[operation as keyof typeof kinds];
    this.operations.push({
      ...{ model, seq, kind },
      ...(name !== undefined && { name }),
      ...(adam_params !== undefined && { adam: ownNames(adam_params) }),
    });
  }
}

interface Asked {
  readonly model_id: string;
  readonly seq_id: number;
  readonly path?: string;
  readonly adam_params?: Readonly<Record<string, number>>;
}

const kinds = {
  optim_step: 'step',
  save_weights: 'state',
  save_weights_for_sampler: 'policy',
  load_weights: 'load',
} as const;

/** What is kept for repetition: the newest ones. */
function remember<T>(list: T[], item: T): void {
  list.push(item);
  if (list.length > 32) list.shift();
}

function seen({ group, scores }: ScoredGroup): ScoredSeen {
  const versions = group.rollouts.flatMap((rollout) =>
    rollout.versions.map(([version]) => version),
  );
  return {
    order: group.ticket.order,
    isUniform: isUniform(scores.map(({ exactReward }) => exactReward)),
    sampledBy: [...new Set(versions)],
  };
}

/** Tells groups apart by their tokens and logprobs alone. */
function keyOf(data: readonly Datum[]): string {
  const hash = createHash('sha256');
  for (const { tokens, targetTokens, inputs } of data) {
    for (const array of [tokens, targetTokens, inputs.logprobs!]) {
      hash.update(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    }
  }
  return hash.digest('hex');
}

function keyOfScored({ group: { promptTokens, rollouts } }: ScoredGroup): string {
  return keyOf(
    rollouts.map(({ tokens, behaviorLogprobs: logprobs }) =>
      datumOf('cispo', promptTokens, tokens, {
        logprobs,
        advantages: new Float32Array(tokens.length),
      }),
    ),
  );
}

/** Tinker's names of AdamW's settings in ours. */
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
