/**
 * Preloaded into a process (`NODE_OPTIONS=--import=…`): once the named pipe HANG_AT exists, its worker
 * threads hang outside JavaScript as soon as they run a model, like a driver call that never returns.
 */
import { existsSync, openSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { InferenceSession } from 'onnxruntime-node';

const pipe = process.env['HANG_AT'];
const model = (InferenceSession as unknown as { prototype: InferenceSession }).prototype;
const run = Reflect.get(model, 'run') as (this: InferenceSession, ...rest: unknown[]) => unknown;

if (!isMainThread && pipe !== undefined) {
  Reflect.set(model, 'run', function (this: InferenceSession, ...rest: unknown[]) {
    if (existsSync(pipe)) openSync(pipe, 'r'); // until a writer opens the pipe, which never happens
    return run.apply(this, rest);
  });
}
