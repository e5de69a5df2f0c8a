import { setTimeout as sleep } from 'node:timers/promises';

/** A signal that never aborts. */
export const never = new AbortController().signal;

/** Waits until the condition holds. Rejects after three minutes, so that the stack names the line that waits. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 180_000;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`still not true after 3 minutes: ${String(condition)}`);
    await sleep(10);
  }
}

/** A promise and the function that resolves it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
