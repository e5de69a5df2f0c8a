/** Where the clocks of this process stood: its processor time, which all threads share, and the time of day. */
export interface Clocks {
  readonly cpu: NodeJS.CpuUsage;
  readonly wall: number; // ms
}

export function startClocks(): Clocks {
  return { cpu: process.cpuUsage(), wall: performance.now() };
}

/** The seconds since then. */
export function spentSince({ cpu, wall }: Clocks): { processor: number; wall: number } {
  const { user, system } = process.cpuUsage(cpu);
  return { processor: (user + system) / 1e6, wall: (performance.now() - wall) / 1e3 };
}
