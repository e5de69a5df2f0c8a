import { setMaxListeners } from 'node:events';
import type { JsMsg } from 'nats';
import { Counter } from 'prom-client';
import type { z } from 'zod';
import { errorText, PermanentError } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { decode } from '../wire/codec.js';
import { type DeathCause, GivenUp } from '../wire/death-cause.js';
import type { Broker } from './broker.js';
import { type Delivery, Settlement } from './delivery.js';
import type { Source } from './names.js';
import { Puller } from './puller.js';
import { countsDeliveries, maxTries } from './run-layout.js';

export type { Delivery } from './delivery.js';
export type { Source } from './names.js';

const redelivered = new Counter({
  name: 'broker_messages_redelivered_total',
  help: 'Messages that had been delivered before.',
  labelNames: ['stage'],
});

interface ConsumeOptions {
  readonly signal: AbortSignal;
  readonly log: Logger;
  /** Who consumes, in metrics and dead letters: actor, reward, learner. */
  readonly stage: string;
  /** How many messages are handled at once; no more are taken from the queue. */
  readonly concurrency: number;
  /** `by-hand`: a handler that succeeds has kept the delivery, and settles it when it likes. */
  readonly settle?: 'after-handle' | 'by-hand';
}

/**
 * Hands each message of a queue to `handle` and settles it by how that went: acknowledged when it
 * succeeded, put aside when it never can (`PermanentError`, a malformed message, the last try), given
 * back for a second otherwise. While the handler runs the lease is prolonged, so a message goes to
 * someone else only when its holder is gone. Goes on across restarts of the server.
 *
 * Resolves once the signal has aborted and no handler runs any more.
 */
export async function consume<S extends z.ZodType>(
  broker: Broker,
  source: Source,
  schema: S,
  options: ConsumeOptions,
  handle: (delivery: Delivery<z.output<S>>) => Promise<void>,
): Promise<void> {
  const { signal, log, stage, concurrency } = options;
  setMaxListeners(0, signal); // each lane listens to it: that many are no leak
  const puller = new Puller(broker.link, source, log, signal);
  const isStopping = () => signal.aborted;
  const failures = new Map<number, number>(); // by sequence number, of messages that are not settled yet
  const lane = async () => {
    for await (const message of puller.messages()) await take(message);
  };
  await Promise.all(Array.from({ length: concurrency }, lane));

  async function take(message: JsMsg): Promise<void> {
    try {
      const settlement = new Settlement(broker, message, stage);
      if (isStopping())
        settlement.nak(); // hand it back now, not when the ack wait runs out
      else await handleAndSettle(message, settlement);
    } catch (err) {
      // The server will deliver it again when the ack wait is over.
      const { subject, seq } = message;
      log.warn({ subject, seq, reason: errorText(err) }, 'message could not be settled');
    }
  }

  async function handleAndSettle(message: JsMsg, settlement: Settlement): Promise<void> {
    const { subject, seq } = message;
    const { deliveryCount } = message.info;
    if (deliveryCount > 1) redelivered.inc({ stage });
    if (countsDeliveries[source] && deliveryCount > maxTries) {
      // The handler never got to say what is wrong: it took its process down with it each time.
      return settlement.dead(`no one who took it lived to settle it, ${deliveryCount - 1} times`);
    }
    const failure = await attempt(message, settlement);
    if (failure === undefined) {
      failures.delete(seq);
      return options.settle === 'by-hand' ? undefined : settlement.lease.ack();
    }
    const tries = countsDeliveries[source] ? deliveryCount : (failures.get(seq) ?? 0) + 1;
    log.warn({ err: failure, subject, seq, tries }, 'message failed');
    if (failure instanceof GivenUp) return giveUp(failure.message, failure.deathCause);
    if (failure instanceof PermanentError) return giveUp(failure.message);
    if (isStopping()) {
      settlement.nak(); // the failure may be no more than the shutdown
      return;
    }
    if (tries >= maxTries) return giveUp(`failed ${tries} times, at last: ${failure.message}`);
    if (!countsDeliveries[source]) failures.set(seq, tries);
    settlement.nak(retryDelayMs);

    async function giveUp(reason: string, cause?: DeathCause): Promise<void> {
      await settlement.dead(reason, cause);
      failures.delete(seq);
    }
  }

  /** What went wrong, if anything. */
  async function attempt(message: JsMsg, settlement: Settlement): Promise<Error | undefined> {
    const prolonging = setInterval(() => {
      settlement.lease.working();
    }, puller.ackWaitMs / 3).unref();
    try {
      const { subject, seq, info } = message;
      const value = decode(schema, subject, await settlement.body());
      await handle({
        value,
        subject,
        seq,
        deliveryCount: info.deliveryCount,
        trace: settlement.trace,
        lease: settlement.lease,
        working: () => {
          settlement.lease.working();
        },
        ack: () => settlement.lease.ack(),
        nak: (delayMs) => {
          settlement.nak(delayMs);
        },
        dead: (reason) => settlement.dead(reason),
      });
      return undefined;
    } catch (caught) {
      return caught instanceof Error ? caught : new Error(String(caught));
    } finally {
      clearInterval(prolonging);
    }
  }
}

const retryDelayMs = 1_000;
