const checkEveryMs = 500;

/**
 * Under `npx offbeat …`, ends this process as SIGTERM would when npx is gone: npm forwards a signal only to the
 * shell between us, which ends without us. Other processes that npx starts set the same variables for theirs, so
 * the script must be ours: a server in the background of an npx shell keeps running.
 */
export function endWithNpx(env: NodeJS.ProcessEnv): void {
  const { npm_lifecycle_event: event, npm_lifecycle_script: script = '' } = env;
  if (event !== 'npx' || !/^(['"]?)offbeat\1(\s|$)/.test(script)) return;
  delete env['npm_lifecycle_event']; // our own processes have another parent
  const launcher = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === launcher) return;
    clearInterval(timer);
    process.kill(process.pid, 'SIGTERM');
  }, checkEveryMs);
  timer.unref();
}
