/** What stands for a figure that is not known. */
export const unknown = '–';

/** With so many decimals. */
export function decimal(value: number | undefined, decimals: number): string {
  return value === undefined || !Number.isFinite(value) ? unknown : value.toFixed(decimals);
}

/** `48.1 %` of a share. */
export function percent(share: number | undefined, decimals = 1): string {
  return share === undefined ? unknown : `${decimal(100 * share, decimals)}\u00A0%`;
}

/** With four significant digits, also of very small and very large values. */
export function figure(value: number): string {
  return String(Number(value.toPrecision(4)));
}

/** `12.5/s`, and slower things by the minute. */
export function perSecond(value: number | undefined): string {
  if (value === undefined) return unknown;
  if (value !== 0 && value < 0.1) return `${(60 * value).toFixed(1)}/min`;
  return `${value.toFixed(value < 100 ? 1 : 0)}/s`;
}
