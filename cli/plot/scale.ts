/** A linear map from values to places on the page. */
export interface Scale {
  readonly place: (value: number) => number;
  readonly ticks: readonly number[]; // inside the domain, rising
}

/** @param range where the domain's ends lie; the first may be the larger, as for an upward axis. */
export function linearScale(
  [low, high]: readonly [number, number],
  [start, end]: readonly [number, number],
  wantedTicks: number,
): Scale {
  const span = high - low;
  const place = (value: number) =>
    start + (span === 0 ? 0.5 : (value - low) / span) * (end - start);
  return { place, ticks: ticksIn(low, high, wantedTicks) };
}

/** Round numbers, 1, 2 or 5 times a power of ten apart, about as many as wanted. */
export function ticksIn(low: number, high: number, wanted: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10]
    .map((factor) => factor * power)
    .find((size) => size >= rough * (1 - 1e-9))!;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const decimals = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: last - first + 1 }, (_, i) =>
    Number(((first + i) * step).toFixed(decimals)),
  );
}

/** The smallest interval that holds all values, a little wider, so that nothing lies on the frame. */
export function domainOf(values: readonly number[]): [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}
