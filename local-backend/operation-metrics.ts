import { Histogram } from 'prom-client';

const operationSeconds = new Histogram({
  name: 'local_backend_operation_seconds',
  help: 'Seconds that an operation took once its turn had come, by operation and outcome.',
  labelNames: ['operation', 'outcome'],
  buckets: [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120],
});

/** Runs `work` and measures it. */
export async function timed<T>(operation: string, work: () => Promise<T>): Promise<T> {
  const stop = operationSeconds.startTimer({ operation });
  try {
    const result = await work();
    stop({ outcome: 'ok' });
    return result;
  } catch (error) {
    stop({ outcome: 'failed' });
    throw error;
  }
}
