/** The median seconds of `runs` calls, after an uncounted one. */
export async function medianSeconds(runs: number, work: (run: number) => unknown): Promise<number> {
  await work(0);
  const seconds: number[] = [];
  for (let run = 1; run <= runs; run++) {
    const start = performance.now();
    await work(run);
    seconds.push((performance.now() - start) / 1_000);
  }
  return seconds.sort((a, b) => a - b)[Math.floor(runs / 2)]!;
}
