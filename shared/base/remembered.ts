/** Promises by key: a Map or a WeakMap. */
interface Promises<K, T> {
  get(key: K): Promise<T> | undefined;
  set(key: K, value: Promise<T>): unknown;
  delete(key: K): unknown;
}

/** The value of `key`, which the first call creates. A failure is not remembered: the next call tries again. */
export function remembered<K, T>(
  values: Promises<K, T>,
  key: K,
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

/** A value that the first call creates, and the next one again if that failed. */
export function lazily<T>(create: () => Promise<T>): () => Promise<T> {
  const only = new Map<undefined, Promise<T>>();
  return () => remembered(only, undefined, create);
}
