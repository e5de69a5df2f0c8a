import { ErrorCode, NatsError } from 'nats';

/**
 * Knows whether the connection is up, and fails requests at once when it breaks: a request sent into a broken
 * connection is never answered, and its own time limit would cost seconds. This is no `TaskScope`: a break ends
 * single requests, which `retry` sends again, while the work that made them goes on.
 */
export class Outages {
  readonly #underWay = new Set<(reason: Error) => void>();
  readonly #hindrances = new Map<object, string>();
  #isDown = false;

  get isDown(): boolean {
    return this.#isDown;
  }

  begin(): void {
    this.#isDown = true;
    for (const fail of this.#underWay) fail(disconnected());
  }

  end(): void {
    this.#isDown = false;
  }

  /** Why some work waits, although the connection is up. */
  get hindrance(): string | undefined {
    return this.#hindrances.values().next().value;
  }

  /** @param reason undefined: this work waits no more, or only as it should. */
  hinder(work: object, reason: string | undefined): void {
    if (reason === undefined) this.#hindrances.delete(work);
    else this.#hindrances.set(work, reason);
  }

  /** Does the work, unless the connection is down or breaks meanwhile. */
  async guard<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isDown) throw disconnected();
    let fail: (reason: Error) => void = () => undefined;
    const lost = new Promise<never>((_, reject) => {
      fail = reject;
    });
    this.#underWay.add(fail);
    try {
      return await Promise.race([work(), lost]);
    } finally {
      this.#underWay.delete(fail);
    }
  }
}

function disconnected(): NatsError {
  return NatsError.errorForCode(ErrorCode.Disconnect);
}
