import { InferenceSession, Tensor as OrtTensor } from 'onnxruntime-node';
import type { Graph } from './graph.js';
import { serialize } from './serialize.js';

export { OrtTensor };
export type Feeds = Record<string, OrtTensor>;

/**
 * A graph loaded into ONNX Runtime on the CPU. A run is a synchronous native call that blocks its
 * thread, so services use sessions in worker threads.
 */
export class Session {
  readonly #session: InferenceSession;

  private constructor(session: InferenceSession) {
    this.#session = session;
  }

  /** @param threads maximum threads per run, at most the CPU limit. */
  static async create(graph: Graph, threads: number): Promise<Session> {
    const session = await InferenceSession.create(serialize(graph), {
      executionProviders: ['cpu'],
      graphOptimizationLevel: 'all',
      executionMode: 'sequential',
      intraOpNumThreads: threads,
      interOpNumThreads: 1,
      // Threads that spin between operators would take CPU time from other processes.
      extra: {
        session: { intra_op: { allow_spinning: '0' } },
        // This optimization turns a Gather of one layer into a Split of all layers and as many Squeezes.
        optimization: {
          disable_specified_optimizers: 'GatherToSplitFusion;GatherSliceToSplitFusion',
        },
      },
      logSeverityLevel: 3,
      externalData: graph.weights.map(({ value, data }) => ({
        path: value.name,
        data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
      })),
    });
    return new Session(session);
  }

  run(feeds: Feeds): Promise<InferenceSession.OnnxValueMapType> {
    return this.#session.run(feeds);
  }
}

/** A float32 tensor over `data`, which is not copied. */
export function floats(data: Float32Array, dims: readonly number[]): OrtTensor {
  return new OrtTensor('float32', data, dims);
}

/** An int64 tensor with the given integers. */
export function integers(data: ArrayLike<number>, dims: readonly number[]): OrtTensor {
  return new OrtTensor('int64', BigInt64Array.from(Array.from(data, BigInt)), dims);
}

/** The float32 elements of one output. */
export function floatOutput(
  outputs: InferenceSession.OnnxValueMapType,
  name: string,
): Float32Array {
  return outputs[name]!.data as Float32Array;
}
