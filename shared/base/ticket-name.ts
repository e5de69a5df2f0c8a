/** `train-00000007`: what all attempts at a ticket have in common. */
export function orderName(order: number): string {
  return `train-${String(order).padStart(8, '0')}`;
}

/** The part of a ticket's id for people: without what nobody can guess, `train-00000007`. */
export function readableId(id: string): string {
  const order = orderOf(id);
  return order === undefined ? id : orderName(order);
}

/** The order that a training ticket's id names, made up or not; undefined for any other text. */
export function orderOf(id: string): number | undefined {
  const [, digits] = /^train-(\d{8,15})(?:-[0-9a-f]{16})?$/.exec(id) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
