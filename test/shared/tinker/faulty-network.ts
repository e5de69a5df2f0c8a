/** A network on which the next request of a path fails in a given way. */
export class FaultyNetwork {
  #next: { readonly code: string; readonly path: string } | undefined;

  fails(code: string, path: string): void {
    this.#next = { code, path };
  }

  readonly fetch: typeof fetch = (input, init) => {
    const next = this.#next;
    const url = input instanceof Request ? input.url : String(input);
    if (next === undefined || !url.endsWith(next.path)) return fetch(input, init);
    this.#next = undefined;
    const cause = Object.assign(new Error(`connect ${next.code}`), { code: next.code });
    return Promise.reject(new TypeError('fetch failed', { cause }));
  };
}
