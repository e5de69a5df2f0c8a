/**
 * The same promise, whose rejection may be looked at late or by another copy of it: to Node it is no
 * unhandled one.
 */
export function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}
