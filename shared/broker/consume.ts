import { setMaxListeners } from 'node:events';
import type { JsMsg } from 'nats';
import { Counter } from 'prom-client';
import type { z } from 'zod';
import { errorText, PermanentError } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { decode } from '../wire/codec.js';
import { type DeathCause, GivenUp } from '../wire/death-cause.js';
import type { Broker } from './broker.js';
import { exportDeadLetters } from './dead-letters.js';
import { type Delivery, Settlement } from './delivery.js';
import type { Source } from './names.js';
import { Puller } from './puller.js';
import { countsDeliveries, maxTries } from './run-layout.js';

export type { Delivery } from './delivery.js';
export type { Source } from './names.js';

const redelivered = new Counter({
  name: 'broker_messages_redelivered_total',
  help: 'Messages that were delivered more than once.',
  labelNames: ['stage'],
});

interface ConsumeOptions {
  readonly signal: AbortSignal;
  readonly log: Logger;
  /** The consuming stage, for metrics and dead letters: actor, reward, learner. */
  readonly stage: string;
  /** How many messages are handled at once; no more are fetched from the queue. */
  readonly concurrency: number;
  /**
   * Awaited before each message is fetched, so that a consumer that cannot handle one now leaves it to others.
   *
   * @param lane number of the lane that would handle it, from 0 and below `concurrency`.
   */
  readonly ready?: (signal: AbortSignal, lane: number) => Promise<void>;
  /** `by-hand`: a handler that succeeds keeps the delivery and settles it later. */
  readonly settle?: 'after-handle' | 'by-hand';
}

/**
 * Passes each message of a queue to `handle` and settles it by the outcome: acknowledged on success,
 * dead-lettered if retrying cannot help (`PermanentError`, a malformed message, the last try), otherwise
 * returned with a delay of one second. The lease is renewed while the handler runs, so a message is
 * redelivered only when its holder is gone. Survives server restarts.
 *
 * Resolves once the signal has aborted and every handler has finished.
 */
export async function consume<S extends z.ZodType>(
  broker: Broker,
  source: Source,
  schema: S,
  options: ConsumeOptions,
  handle: (delivery: Delivery<z.output<S>>) => Promise<void>,
): Promise<void> {
  const { signal, log, stage, concurrency } = options;
  setMaxListeners(0, signal); // one listener per lane is not a leak
  exportDeadLetters(stage);
  const puller = new Puller(broker.link, source, log, signal, options.ready);
  const isStopping = () => signal.aborted;
  const failures = new Map<string, number>(); // failed tries of unsettled messages
  const consumeIn = async (lane: number) => {
    for await (const message of puller.messages(lane)) await take(message);
  };
  await Promise.all(Array.from({ length: concurrency }, (_, lane) => consumeIn(lane)));

  async function take(message: JsMsg): Promise<void> {
    try {
      const settlement = new Settlement(broker, message, stage);
      if (isStopping()) settlement.nak(); // return it now instead of when the ack wait expires
      else await handleAndSettle(message, settlement);
    } catch (err) {
      // The server redelivers it when the ack wait expires.
      const { subject, seq } = message;
      log.warn({ subject, seq, reason: errorText(err) }, 'message not settled');
    }
  }

  async function handleAndSettle(message: JsMsg, settlement: Settlement): Promise<void> {
    const { subject, seq } = message;
    const { deliveryCount, timestampNanos } = message.info;
    // A stream that lost its files counts from 1 again, so a number alone does not identify a message.
    const identity = `${seq} ${timestampNanos}`;
    if (deliveryCount > 1) redelivered.inc({ stage });
    if (countsDeliveries[source] && deliveryCount > maxTries) {
      // No handler reported an error: its process died, or stopped and returned the message.
      return settlement.dead(
        `no consumer settled it: each died or was stopped (${deliveryCount - 1} deliveries)`,
      );
    }
    const failure = await attempt(message, settlement);
    if (failure === undefined) {
      failures.delete(identity);
      return options.settle === 'by-hand' ? undefined : settlement.lease.ack();
    }
    const tries = countsDeliveries[source] ? deliveryCount : (failures.get(identity) ?? 0) + 1;
    log.warn({ err: failure, subject, seq, tries }, 'message failed');
    if (failure instanceof GivenUp) return giveUp(failure.message, failure.deathCause);
    if (failure instanceof PermanentError) return giveUp(failure.message);
    if (isStopping()) {
      settlement.nak(); // the shutdown itself may have caused the failure
      return;
    }
    if (tries >= maxTries) return giveUp(`failed ${tries} times, last error: ${failure.message}`);
    if (!countsDeliveries[source]) rememberFailure(identity, tries);
    settlement.nak(retryDelayMs);

    async function giveUp(reason: string, cause?: DeathCause): Promise<void> {
      await settlement.dead(reason, cause);
      failures.delete(identity);
    }
  }

  /** Others may handle the next try of a message, so this process may never hear of it again. */
  function rememberFailure(identity: string, tries: number): void {
    failures.set(identity, tries);
    if (failures.size > mostFailures) failures.delete(failures.keys().next().value!);
  }

  /** Handles the message once. @returns the error, if it failed. */
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
        nak: (delayMs) => {
          settlement.nak(delayMs);
        },
        dead: (reason, sender) => settlement.dead(reason, undefined, sender),
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
const mostFailures = 10_000;
