import { once } from 'node:events';

/**
 * Runs tasks that live and end together: when one rejects, the others are aborted and awaited, and
 * its error is the error of the whole. Abortion itself is no error.
 *
 * @param signal ends all of them.
 */
export async function together(
  signal: AbortSignal,
  tasks: readonly ((signal: AbortSignal) => Promise<void>)[],
): Promise<void> {
  const failure = new AbortController();
  const ending = AbortSignal.any([signal, failure.signal]);
  let first: { error: unknown } | undefined;
  await Promise.all(
    tasks.map(async (task) => {
      try {
        await task(ending);
      } catch (error) {
        if (ending.aborted && isAbort(error, ending)) return;
        first ??= { error };
        failure.abort(error);
      }
    }),
  );
  if (first !== undefined) throw first.error;
}

/** Whether an error says only that `signal` aborted, whoever threw it. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  return (
    error === signal.reason || (error instanceof Error && error.name === 'AbortError') // node's own
  );
}

/** Resolves once `signal` has aborted. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}
