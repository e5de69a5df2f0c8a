import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/**
 * Loaded before a service (`node --import`), it lets a test ask what the service still holds: at each
 * SIGUSR2 everything is collected that can be, and a line of the log tells how many bytes are left, on
 * the heap and in buffers beside it. What nobody needs does not count, so the figure is the same
 * whenever it is asked for. Worker threads are not counted.
 */
if (isMainThread) {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  process.on('SIGUSR2', () => void report(collect));
}

async function report(collect: () => void): Promise<void> {
  for (let round = 0; round < 3; round++) {
    collect();
    await setImmediate(); // what is let go by finalizers goes in the next round
  }
  const { heapUsed, external } = process.memoryUsage();
  process.stdout.write(`${JSON.stringify({ msg: 'live memory', bytes: heapUsed + external })}\n`);
}
