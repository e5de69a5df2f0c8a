/**
 * Loaded before a service (`node --import`), it lets the service's clock jump: at each SIGUSR2 by an
 * hour forward, two back, three forward and so on. Monotonic time (`performance.now`) is unchanged,
 * as it does on a real machine whose clock is set.
 */
const hourMs = 3_600_000;
const realNow = Date.now.bind(Date);
const RealDate = Date;
let offsetMs = 0;
let jumps = 0;

process.on('SIGUSR2', () => {
  jumps += 1;
  offsetMs += (jumps % 2 === 1 ? 1 : -1) * jumps * hourMs;
});

RealDate.now = () => realNow() + offsetMs;
globalThis.Date = new Proxy(RealDate, {
  construct: (target, given: unknown[], newTarget: typeof RealDate) =>
    Reflect.construct(target, given.length === 0 ? [RealDate.now()] : given, newTarget) as Date,
});
