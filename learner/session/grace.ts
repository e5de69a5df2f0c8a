/** How long the learner may take to finish its steps and to checkpoint once it is asked to stop. */
export const graceMs = 25_000;

/**
 * A signal that aborts some time after `stop` does, for what is still needed then: the broker and the
 * backend.
 */
export function graceAfter(stop: AbortSignal): { readonly signal: AbortSignal } & Disposable {
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const begin = (): void => {
    timer = setTimeout(() => {
      over.abort(new Error(`the last checkpoint took more than ${graceMs / 1_000} s`));
    }, graceMs);
  };
  if (stop.aborted) begin();
  else stop.addEventListener('abort', begin, { once: true });
  return {
    signal: over.signal,
    [Symbol.dispose]: () => {
      stop.removeEventListener('abort', begin);
      clearTimeout(timer);
    },
  };
}
