import { TracedLoss } from '../../../local-backend/custom-loss/traced-loss.js';
import { CreateCustomLossRequest } from '../../../shared/tinker/api.js';

export interface Ref {
  readonly ref: string;
}

/** Records a loss as torch.fx does: `call` is a function, `method` one of a tensor. */
export class Trace {
  readonly nodes: Record<string, unknown>[] = [];

  input(name: string): Ref {
    return this.#node(name, 'placeholder', name, []);
  }

  call(target: string, ...args: unknown[]): Ref {
    return this.#node(`n${this.nodes.length}`, 'call_function', target, args);
  }

  method(name: string, ...args: unknown[]): Ref {
    return this.#node(`n${this.nodes.length}`, 'call_method', name, args);
  }

  named(target: string, args: unknown[], kwargs: Record<string, unknown>): Ref {
    return this.#node(`n${this.nodes.length}`, 'call_function', target, args, kwargs);
  }

  returns(loss: unknown, metrics: Record<string, unknown> = {}): void {
    this.#node('output', 'output', 'output', [{ tuple: [loss, { dict: metrics }] }]);
  }

  #node(name: string, op: string, target: string, args: unknown[], kwargs = {}): Ref {
    this.nodes.push({ op, name, target, args, kwargs });
    return { ref: name };
  }
}

/** The body of create_custom_loss for what `record` traces, which reads these inputs besides logprobs. */
export function customLossBody(
  record: (trace: Trace, logprobs: Ref, ...inputs: Ref[]) => void,
  inputs: Readonly<Record<string, 0 | 1 | 2>> = {},
) {
  const trace = new Trace();
  const named = { logprobs: 1, ...inputs };
  record(trace, ...(Object.keys(named).map((name) => trace.input(name)) as [Ref]));
  return {
    session_id: 'session',
    custom_loss_seq_id: 0,
    name: 'mine',
    inputs: Object.entries(named).map(([name, rank]) => ({ name, rank })),
    graph: { format: 1, nodes: trace.nodes },
  };
}

export function tracedLoss(...args: Parameters<typeof customLossBody>): TracedLoss {
  return new TracedLoss(CreateCustomLossRequest.parse(customLossBody(...args)));
}
