import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/**
 * Loaded before a service (`node --import`), it reports the service's live memory to a test: at each
 * SIGUSR2 it collects all garbage, and a line of the log has the number of bytes left, on
 * the heap and in external buffers. Garbage does not count, so the figure is the same
 * at any time. Worker threads are not counted.
 */
if (isMainThread) {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  process.on('SIGUSR2', () => void report(collect));
}

async function report(collect: () => void): Promise<void> {
  for (let round = 0; round < 3; round++) {
    collect();
    await setImmediate(); // objects released by finalizers are collected in the next round
  }
  const { heapUsed, external } = process.memoryUsage();
  process.stdout.write(`${JSON.stringify({ msg: 'live memory', bytes: heapUsed + external })}\n`);
}
