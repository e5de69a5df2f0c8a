import { setTimeout as sleep } from 'node:timers/promises';

const pollMs = 150;

/**
 * Waits until `/readyz` says that a process can work.
 *
 * @param isOver asked between polls: true once the process has ended, so that waiting is pointless.
 * @returns undefined when it is ready, else why it is not, in its own words.
 */
export async function waitForReady(
  healthUrl: string,
  { signal, isOver }: { signal: AbortSignal; isOver: () => boolean },
): Promise<string | undefined> {
  let reason = 'it does not answer yet';
  while (!signal.aborted && !isOver()) {
    try {
      const response = await fetch(`${healthUrl}/readyz`, {
        signal: AbortSignal.any([signal, AbortSignal.timeout(5_000)]),
      });
      const text = (await response.text()).trim();
      if (response.ok) return undefined;
      reason = text;
    } catch {
      // Not listening yet.
    }
    await sleep(pollMs, undefined, { signal }).catch(() => undefined);
  }
  return reason;
}
