/** The actor's decoder thread with a clock that is a second further at each look. */
import { performance } from 'node:perf_hooks';

let seconds = 0;
performance.now = () => 1_000 * ++seconds;
await import('../../actor/sampler/decoder-worker.js');
