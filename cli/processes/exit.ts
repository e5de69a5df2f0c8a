/** How a process ended. */
export interface Exit {
  readonly code: number | undefined;
  readonly signal: NodeJS.Signals | undefined;
  /** Why it never started, when it did not. */
  readonly failure?: string;
}

/** `ended with code 1`, for a sentence that begins with the process's name. */
export function describeExit({ code, signal, failure }: Exit): string {
  if (failure !== undefined) return `could not start: ${failure}`;
  return signal === undefined ? `ended with code ${code ?? 'unknown'}` : `was killed by ${signal}`;
}
