import { ErrorCode, NatsError } from 'nats';

/**
 * Knows whether the connection is up, and fails at once what a break has made hopeless: a request
 * sent into a broken connection is never answered, and its own time limit would cost seconds.
 */
export class Outages {
  readonly #underWay = new Set<(reason: Error) => void>();
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
