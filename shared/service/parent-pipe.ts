import type { Environment } from './config.js';

/** Set by a launcher that holds the other end of its child's standard input for as long as it lives. */
export const parentPipe = 'OFFBEAT_PARENT_PIPE';

/**
 * Calls `whenGone` once the launcher has died. The kernel closes its end of the pipe however it
 * died, SIGKILL included, which no signal handler and no parent-process-id check can promise.
 * Does nothing unless OFFBEAT_PARENT_PIPE=1, and never keeps the process alive by itself.
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
  // A pipe is a socket; a file, from which stdin also may come, has no unref and ends by itself.
  if ('unref' in stdin) stdin.unref();
}
