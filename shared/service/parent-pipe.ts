import type { Environment } from './config.js';

/** Set by a launcher that keeps the other end of its child's standard input open until it exits. */
export const parentPipe = 'OFFBEAT_PARENT_PIPE';

/**
 * Calls `whenGone` once the launcher has died. The kernel closes the launcher's end of the pipe even after
 * SIGKILL, which neither a signal handler nor a check of the parent process id guarantees. Does nothing
 * unless OFFBEAT_PARENT_PIPE=1, and never keeps the process alive.
 */
export function onParentGone(env: Environment, whenGone: () => void): void {
  if (env[parentPipe] !== '1') return;
  const { stdin } = process;
  let isGone = false;
  for (const event of ['end', 'close', 'error']) {
    stdin.on(event, () => {
      if (!isGone) whenGone();
      isGone = true;
    });
  }
  stdin.resume();
  // A pipe is a socket; stdin may also be a file, which has no unref and ends by itself.
  if ('unref' in stdin) stdin.unref();
}
