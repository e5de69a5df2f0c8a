import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { followRun } from '../../../cli/up/progress.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { evalResult } from '../../support/messages.js';

/** What the screen is told of these events by a start that begins at 1,000,000 ms. */
async function shown(events: readonly RunEvent[]) {
  const notes: string[] = [];
  const lines: string[] = [];
  const screen = {
    note: (text: string) => void notes.push(text),
    warn: (text: string) => void notes.push(text),
    status: (text: string) => void lines.push(text),
    columns: () => Infinity,
  };
  async function* read() {
    for (const event of events) yield await Promise.resolve(event);
  }
  const { signal } = new AbortController();
  await followRun({ events: { read } }, { goal: { maxSteps: 9 }, screen, signal });
  return { notes, lines };
}

const [before, now] = [999_000, 1_001_000];
const quarantine = (at: number, actor: string): RunEvent => ({
  ...{ v: 1, at, kind: 'quarantine', actor, gap: 0.3, bound: 0.05, groups: 4, version: 2 },
});
const evaluated = (at: number, version: number): RunEvent => ({
  ...{ v: 1, at, kind: 'eval', result: evalResult({ version }) },
});
const step = (at: number, number: number): RunEvent => ({
  ...{ v: 1, at, kind: 'step', step: number, version: number, metrics: { seconds: 1 } },
});
const held = (at: number, withdrawn: number): RunEvent => ({
  ...{ v: 1, at, kind: 'held', split: 'train', tickets: 3, withdrawn },
  ...{ longestSeconds: 12, limitSeconds: 60 },
});

describe('the screen of a resumed run', () => {
  it('the screen of a resumed run shows current events, and of past ones only the quarantined actors', async (context) => {
    context.mock.timers.enable({ apis: ['Date', 'setInterval'], now: 1_000_000 });
    const { notes, lines } = await shown([
      ...[step(before, 1), evaluated(before, 1), held(before, 1), quarantine(before, 'actor-1')],
      ...[step(now, 2), evaluated(now, 2), held(now, 1), quarantine(now, 'actor-2')],
    ]);
    assert.deepEqual(
      notes.map((note) => note.split(/[:,] /).slice(0, 2).join(': ')),
      [
        'from before: actor-1 is quarantined',
        'version 2: 25.0 % of 2 held-out problems solved',
        'actors have kept 3 train tickets for up to 12 s: longer than usual',
        'actor-2 is quarantined: in 4 groups its logprobs were 0.300 nats per token from those of the policy',
      ],
    );
    assert.deepEqual(
      lines.filter((line) => line.startsWith('step')).map((line) => line.split('  ')[0]),
      ['step 2/9'],
    );
  });

  it('the screen reports held tickets once a minute, and each ticket that is taken back', async (context) => {
    context.mock.timers.enable({ apis: ['Date', 'setInterval'], now: 1_000_000 });
    const minute = 60_000;
    const { notes } = await shown([
      ...[held(now, 0), held(now + minute / 2, 0), held(now + minute / 2, 1)],
      held(now + 2 * minute, 0),
    ]);
    assert.equal(notes.length, 3);
    assert.match(notes[1]!, /1 taken back and issued again/);
  });
});
