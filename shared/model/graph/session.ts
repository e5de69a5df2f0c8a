import { InferenceSession, Tensor as OrtTensor } from 'onnxruntime-node';
import type { Graph, Weight } from './graph.js';
import { isFileRange, serialize } from './serialize.js';

export { OrtTensor };
export type Feeds = Record<string, OrtTensor>;

/**
 * A graph loaded into ONNX Runtime on the CPU. A run is a synchronous native call that blocks its
 * thread, so services use sessions in worker threads.
 */
export class Session {
  readonly #session: InferenceSession;
  readonly #weights: Feeds; // those that are not in the session

  private constructor(session: InferenceSession, weights: Feeds) {
    this.#session = session;
    this.#weights = weights;
  }

  /**
   * @param threads maximum threads per run, at most the CPU limit.
   * @param options.sharesWeights whether each run reads the graph's weights, float32 in memory, where they are. Else
   *   the session has a copy, arranged for its products: with one row it is no faster, with 16 it is up to 1.7 times
   *   as fast, with 512 up to 1.2 times.
   * @param options.keepsFreed whether memory that a run has freed is kept for the next, in steps of powers of two, and
   *   the second run of a shape has all of its tensors in one block. That saves time with small tensors only.
   */
  static async create(
    graph: Graph,
    threads: number,
    { sharesWeights = false, keepsFreed = true } = {},
  ): Promise<Session> {
    const session = await InferenceSession.create(
      serialize(graph, { hasWeightInputs: sharesWeights }),
      {
        executionProviders: ['cpu'],
        graphOptimizationLevel: 'all',
        executionMode: 'sequential',
        enableCpuMemArena: keepsFreed,
        enableMemPattern: keepsFreed,
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        // Threads that spin between operators would take CPU time from other processes.
        extra: {
          session: {
            intra_op: { allow_spinning: '0' },
            model_external_initializers_file_folder_path: '/',
          },
          // This optimization turns a Gather of one layer into a Split of all layers and as many Squeezes.
          optimization: {
            disable_specified_optimizers: 'GatherToSplitFusion;GatherSliceToSplitFusion',
          },
        },
        logSeverityLevel: 3,
        externalData: sharesWeights ? [] : graph.weights.flatMap(inMemory),
      },
    );
    const shared = sharesWeights ? graph.weights : [];
    return new Session(
      session,
      Object.fromEntries(
        shared.map(({ value, data }) => [
          value.name,
          floats(data as Float32Array, value.dims as number[]),
        ]),
      ),
    );
  }

  run(feeds: Feeds): Promise<InferenceSession.OnnxValueMapType> {
    return this.#session.run({ ...this.#weights, ...feeds });
  }
}

/** A weight that is given to ONNX Runtime; those in files it maps itself. */
function inMemory({ value, data }: Weight): { path: string; data: Uint8Array }[] {
  if (isFileRange(data)) return [];
  return [
    { path: value.name, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) },
  ];
}

/** A float32 tensor over `data`, which is not copied. */
export function floats(data: Float32Array, dims: readonly number[]): OrtTensor {
  return new OrtTensor('float32', data, dims);
}

/** An int64 tensor with the given integers of 32 bits. */
export function integers(data: ArrayLike<number>, dims: readonly number[]): OrtTensor {
  const halves = new Int32Array(2 * data.length); // little-endian; a BigInt for each would take far longer
  for (let i = 0; i < data.length; i++) {
    halves[2 * i] = data[i]!;
    halves[2 * i + 1] = data[i]! < 0 ? -1 : 0;
  }
  return new OrtTensor('int64', new BigInt64Array(halves.buffer), dims);
}

const { port1: closedPort } = new MessageChannel();
closedPort.close();

/**
 * Frees the memory of tensors at once, which are empty from then on. Otherwise it is freed when V8 next collects garbage,
 * and so many bytes outside of its heap make V8 do so several times a second.
 *
 * @param kept tensors that may share memory with the others, and keep it.
 */
export function release(tensors: Iterable<OrtTensor>, kept: Iterable<OrtTensor> = []): void {
  const buffers = new Set(Array.from(tensors, bufferOf));
  for (const tensor of kept) buffers.delete(bufferOf(tensor));
  closedPort.postMessage(undefined, [...buffers]); // takes what it is given, and drops it
}

function bufferOf({ data }: OrtTensor): ArrayBuffer {
  return (data as Float32Array<ArrayBuffer>).buffer;
}

/** The float32 elements of one output. */
export function floatOutput(
  outputs: InferenceSession.OnnxValueMapType,
  name: string,
): Float32Array {
  return outputs[name]!.data as Float32Array;
}
