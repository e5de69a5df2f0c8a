/** `48.1 %` for a share of 0.481. */
export function percent(share: number, decimals = 1): string {
  return `${(100 * share).toFixed(decimals)} %`;
}
