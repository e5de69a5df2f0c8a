import { ticketAttributes } from '../../shared/wire/ticket-attributes.js';
import { startSpan } from '../../shared/service/telemetry/tracing.js';
import type { TrainedGroup } from './step-report.js';

/** Ends the trace of each group that a step has trained on: from its arrival until now. */
export function recordTrainSpans(
  run: string,
  { step, version }: { readonly step: number; readonly version: number }, // that trained
  trained: readonly TrainedGroup[],
): void {
  for (const { group, staleness } of trained) {
    const { ticket } = group.scored.group;
    startSpan('train', () => ({
      ticket: { run, ticketId: ticket.ticketId },
      parent: group.trace,
      startedAt: group.arrivedAt,
      attributes: {
        ...ticketAttributes(ticket),
        'offbeat.step': step,
        'offbeat.version': version,
        'offbeat.staleness': staleness,
      },
    }))?.end();
  }
}
