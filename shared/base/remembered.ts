/** The value of `key`, which the first call creates. A failure is not remembered: the next call tries again. */
export function remembered<T>(
  values: Map<string, Promise<T>>,
  key: string,
  create: () => Promise<T>,
): Promise<T> {
  let value = values.get(key);
  if (value === undefined) {
    value = create();
    values.set(key, value);
    value.catch(() => values.delete(key));
  }
  return value;
}
