import type { InferenceSession } from 'onnxruntime-node';
import { floatOutput, floats, integers, OrtTensor, type Feeds } from './graph/session.js';
import type { GroupDraft, RolloutDraft } from './rollout-draft.js';

/** Rollouts of a group that share what the prefill read: its prompt, or after a prefill on adoption their own text. */
interface Lane {
  readonly group: GroupDraft;
  readonly prompt: number; // its row in the prefill
  live: readonly LiveRollout[];
}

interface LiveRollout {
  readonly row: number; // in the previous step
  readonly rollout: RolloutDraft;
}

/** Before the first step there are no rows to continue. */
const atFirstRow = (rollout: RolloutDraft): LiveRollout => ({ row: 0, rollout });

/** What the rollouts of a lane have in common: the prompt, and the tokens of a rollout that is alone. */
function textOf({ group, live }: Lane): Int32Array {
  const { prompt } = group.request;
  return live.length === 1 ? Int32Array.of(...prompt, ...live[0]!.rollout.tokens) : prompt;
}

/**
 * The rows of one step: every lane has as many as the lane with the most live rollouts. A lane with
 * fewer repeats its first row, and the results of these rows are ignored.
 */
export class Grid {
  constructor(
    readonly lanes: readonly Lane[],
    readonly rowsPerLane = Math.max(...lanes.map(({ live }) => live.length)),
  ) {}

  /** The first step: a lane per group. */
  static of(groups: readonly GroupDraft[]): Grid {
    return new Grid(
      groups.map((group, prompt) => ({ group, prompt, live: group.rollouts.map(atFirstRow) })),
    );
  }

  /** These lanes of the step, with as many rows each. */
  part(from: number, to: number): Grid {
    return new Grid(this.lanes.slice(from, to), this.rowsPerLane);
  }

  /** Number of rows. */
  get size(): number {
    return this.lanes.length * this.rowsPerLane;
  }

  /** What a prefill reads for each lane. */
  get texts(): Int32Array[] {
    return this.lanes.map(textOf);
  }

  /** The same rollouts, each in a lane by itself. */
  oneRolloutPerLane(): Grid {
    const alone = this.lanes.flatMap(({ group, live }) =>
      live.map(({ rollout }) => ({ group, live: [atFirstRow(rollout)] })),
    );
    return new Grid(alone.map((lane, prompt) => ({ ...lane, prompt })));
  }

  /** The random numbers and sampling parameters of the step; one of each for every row. */
  samplingFeeds(): Feeds {
    const temperatures = this.#column(({ group }) => group.request.temperature || 1);
    const uniform = this.#column(({ live }, place) => live[place]?.rollout.draw() ?? 0);
    const isGreedy = this.#column(({ group }) => Number(group.request.temperature === 0));
    const forced = this.#column(({ live }, place) => live[place]?.rollout.forcedToken ?? -1);
    const dims = [uniform.length, 1];
    return {
      uniform: floats(uniform, dims),
      temperature: floats(temperatures, dims),
      greedy: new OrtTensor('bool', Uint8Array.from(isGreedy), dims),
      forced: integers(forced, dims),
    };
  }

  /** The row inputs of a decoding step. */
  rowFeeds(): Feeds {
    const { lanes, rowsPerLane } = this;
    const at = ({ live }: Lane, place: number) => live[place] ?? live[0]!;
    const dims = [lanes.length, rowsPerLane, 1];
    const rows = this.#column((lane, place) => at(lane, place).row);
    const tokens = this.#column((lane, place) => at(lane, place).rollout.lastToken);
    const positions = this.#column((lane, place) => {
      const { rollout } = at(lane, place);
      return lane.group.request.prompt.length + rollout.length - 1;
    });
    return {
      tokens: integers(tokens, dims),
      rows: integers(rows, [rows.length]),
      positions: integers(positions, [positions.length, 1]),
      groups: integers(
        lanes.map(({ prompt }) => prompt),
        [lanes.length],
      ),
    };
  }

  /** Appends to each live rollout the token of its row, and removes the rollouts that are finished. */
  append(sampled: InferenceSession.OnnxValueMapType, version: number): void {
    const tokens = sampled['token']!.data as BigInt64Array;
    const logprobs = floatOutput(sampled, 'logprob');
    this.lanes.forEach((lane, l) => {
      const rows = lane.live.map(({ rollout }, place) => ({
        row: l * this.rowsPerLane + place,
        rollout,
      }));
      for (const { row, rollout } of rows) {
        rollout.append(Number(tokens[row]), logprobs[row]!, version);
      }
      lane.live = rows.filter(({ rollout }) => !rollout.isDone);
    });
  }

  #column(value: (lane: Lane, place: number) => number): Float32Array {
    const { lanes, rowsPerLane } = this;
    return Float32Array.from({ length: lanes.length * rowsPerLane }, (_, i) =>
      value(lanes[Math.floor(i / rowsPerLane)]!, i % rowsPerLane),
    );
  }
}

/** Texts in one batch, padded at their ends to `width`, each a row of a group of its own; the last token of each is drawn from `draws` times. */
export function textFeeds(texts: readonly Int32Array[], width: number, draws: number): Feeds {
  const tokens = new Int32Array(texts.length * width);
  const positions = Int32Array.from(tokens, (_, i) => i % width);
  texts.forEach((text, i) => {
    tokens.set(text, i * width);
  });
  const ends = texts.flatMap((text, i) => Array<number>(draws).fill(i * width + text.length - 1));
  return {
    tokens: integers(tokens, [texts.length, 1, width]),
    positions: integers(positions, [texts.length, width]),
    ends: integers(ends, [ends.length]),
  };
}

/** 0, 1, … below `count`. */
export function indices(count: number): OrtTensor {
  return integers(
    Array.from({ length: count }, (_, i) => i),
    [count],
  );
}

/** 0 where a text has a token, -∞ on its padding: [texts, 1, 1, 1, width]. */
export function paddingBias(texts: readonly Int32Array[], width: number): OrtTensor {
  const bias = texts.flatMap(({ length }) =>
    Array.from({ length: width }, (_, i) => (i < length ? 0 : -Infinity)),
  );
  return floats(Float32Array.from(bias), [texts.length, 1, 1, 1, width]);
}

/** One output of several runs, joined along an axis. */
export function joinedTensor(
  parts: readonly InferenceSession.OnnxValueMapType[],
  name: string,
  axis: 0 | 1,
): OrtTensor {
  const tensors = parts.map((part) => part[name] as OrtTensor);
  const [first] = tensors;
  if (tensors.length === 1) return first!;
  const dims = first!.dims.with(
    axis,
    tensors.reduce((sum, tensor) => sum + tensor.dims[axis]!, 0),
  );
  const outer = axis === 0 ? 1 : dims[0]!;
  const Numbers = first!.data.constructor as Float32ArrayConstructor;
  const data = new Numbers(dims.reduce((product, dim) => product * dim, 1));
  let offset = 0;
  for (let i = 0; i < outer; i++) {
    for (const tensor of tensors) {
      const values = tensor.data as Float32Array; // or BigInt64Array, as `data`
      const length = values.length / outer;
      data.set(values.subarray(i * length, (i + 1) * length), offset);
      offset += length;
    }
  }
  return new OrtTensor(first!.type, data, dims);
}
