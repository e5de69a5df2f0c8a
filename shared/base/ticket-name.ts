/** Returns `train-00000007`, the name shared by all attempts at a ticket. */
export function orderName(order: number): string {
  return `train-${String(order).padStart(8, '0')}`;
}

/** Returns the readable part of a ticket's id, without its unguessable suffix: `train-00000007`. */
export function readableId(id: string): string {
  const order = orderOf(id);
  return order === undefined ? id : orderName(order);
}

/** Returns the order in a training ticket's id, genuine or forged; undefined for any other text. */
export function orderOf(id: string): number | undefined {
  const [, digits] = /^train-(\d{8,15})(?:-[0-9a-f]{16})?$/.exec(id) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
