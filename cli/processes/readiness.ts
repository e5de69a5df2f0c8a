import { setTimeout as sleep } from 'node:timers/promises';
import { isDiskTrouble } from '../../shared/service/telemetry/disk-room.js';

const pollMs = 150;

/**
 * Waits until `/readyz` says that a process can work.
 *
 * @param isOver asked between polls: true once the process has ended, so that waiting is pointless.
 * @param onReason called after each poll with the process's own reason why it is not ready.
 * @returns undefined when it is ready, else why it is not, in its own words.
 */
export async function waitForReady(
  healthUrl: string,
  {
    signal,
    isOver,
    onReason,
  }: { signal: AbortSignal; isOver: () => boolean; onReason?: (reason: string) => void },
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
      onReason?.(reason);
    } catch {
      // Not listening yet.
    }
    await sleep(pollMs, undefined, { signal }).catch(() => undefined);
  }
  return reason;
}

/** A process, which is asked at its health endpoint if it has one. */
export interface Asked {
  readonly healthUrl?: string;
}

/**
 * Waits until all members are ready. Reports those that take long, such as an actor whose engine does not answer.
 *
 * @param options.find the process of a member; another one after a restart.
 * @param options.slowMs interval of the reports; a report that would repeat the last one is left out.
 * @returns why members are not ready once `limit` aborts; none when all are.
 */
export async function whatIsNotReady(
  names: readonly string[],
  options: {
    readonly find: (name: string) => Asked | undefined;
    readonly limit: AbortSignal;
    readonly report: (line: string) => void;
    readonly slowMs: number;
  },
): Promise<string[]> {
  const { find, limit, report, slowMs } = options;
  const reasons = new Map<string, string>();
  let reported = '';
  const slow = setInterval(() => {
    const lines = [...reasons].map(([name, reason]) => `${name} is not ready yet: ${reason}`);
    if (lines.join() !== reported) for (const line of lines) report(line);
    reported = lines.join();
  }, slowMs);
  const waitFor = async (name: string): Promise<string | undefined> => {
    for (;;) {
      const running = find(name);
      if (running?.healthUrl !== undefined) {
        const hasEnded = () => find(name) !== running;
        const onReason = (reason: string) => reasons.set(name, reason);
        const waiting = { signal: limit, isOver: hasEnded, onReason };
        const reason = await waitForReady(running.healthUrl, waiting);
        if (reason === undefined) {
          reasons.delete(name);
          return undefined;
        }
        if (limit.aborted) return `${name} is not ready: ${reason}`;
      }
      if (limit.aborted) return `${name} did not start`;
      await sleep(50);
    }
  };
  try {
    const problems = await Promise.all(names.map(waitFor));
    return problems.filter((problem) => problem !== undefined);
  } finally {
    clearInterval(slow);
  }
}

/** The disk trouble that a health endpoint reports. */
export async function reportedDiskTrouble(
  members: Iterable<readonly [name: string, Asked]>,
): Promise<string | undefined> {
  const answers = await Promise.all(
    [...members].map(async ([name, { healthUrl }]) => {
      if (healthUrl === undefined) return undefined;
      try {
        const signal = AbortSignal.timeout(2_000);
        const text = await (await fetch(`${healthUrl}/readyz`, { signal })).text();
        return isDiskTrouble(text) ? `${text.split(';')[0]!.trim()} (${name})` : undefined;
      } catch {
        return undefined; // it starts, or ends
      }
    }),
  );
  return answers.find((answer) => answer !== undefined);
}
