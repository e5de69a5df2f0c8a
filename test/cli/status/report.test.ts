import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { RunState } from '../../../cli/existing-run/run-state.js';
import { reportOf } from '../../../cli/status/report.js';
import { statusReportText } from '../../../cli/status/text.js';
import { runConfig } from '../../support/messages.js';
import { leaseAfter, snapshot } from '../../support/run-view.js';

const { backlog, manifest } = snapshot(3);

/** A run whose learner was given 727 scored groups, of which 720 are consumed. */
function state(over: Partial<RunState> = {}): RunState {
  const metrics = { groups_awaiting_checkpoint: 720, publish_lag: 1, seconds: 2 };
  const consumers = { ...backlog.consumers, 'scored.train': { pending: 3, ackPending: 727 } };
  return {
    run: 'r',
    at: 100_000,
    config: runConfig(),
    leader: { v: 1, holder: 'learner', renewedAt: 99_000 },
    policy: manifest, // version 7
    steps: [{ v: 1, kind: 'step', at: 90_000, step: 8, version: 8, metrics }],
    evaluation: undefined,
    lead: undefined,
    end: undefined,
    actors: [leaseAfter(40)],
    backlog: { ...backlog, consumers },
    newestDeadLetter: undefined,
    ...over,
  };
}

const text = (over: Partial<RunState> = {}) => statusReportText(reportOf(state(over)));

describe('the status of a run', () => {
  it('the status of a run shows groups that await their checkpoint apart from waiting and unacknowledged ones', () => {
    const queue = reportOf(state()).queues.find(({ name }) => name === 'scored.train');
    assert.deepEqual([queue?.waiting, queue?.inHand, queue?.awaitingCheckpoint], [3, 7, 720]);
    assert.match(text(), /^scored\.train +3 +7 +-$/m);
    assert.match(
      text(),
      /^720 consumed groups more in scored\.train: kept until the next checkpoint/m,
    );
  });

  it('the status of a run has a line for each engine, with what it says of itself and why it is not used', () => {
    assert.deepEqual(reportOf(state()).engines, []);
    const engine = { url: 'http://gpu-0:8000', adapters: 2, slots: 6 };
    const known = { release: '0.32.0', running: 48, waiting: 3, kvUsage: 0.4 };
    const engines = [
      { ...engine, ...known },
      { ...engine, url: 'http://gpu-1:8000', adapters: 0, trouble: 'it draws no tokens' },
    ];
    const actors = [leaseAfter(40, { engines, lastSeenAt: 99_000 })];
    const shown = text({ actors });
    assert.match(
      shown,
      /^http:\/\/gpu-0:8000 +actor-0 +0\.32\.0 +48 +3 +40(\.0)?.% +2\/6 +in use$/m,
    );
    assert.match(
      shown,
      /^http:\/\/gpu-1:8000 +actor-0 +\? +\? +\? +\? +0\/6 +out of use: it draws no tokens$/m,
    );
    const gone = [leaseAfter(40, { engines, lastSeenAt: 50_000 })];
    assert.doesNotMatch(text({ actors: gone }), /gpu-0/);
  });

  it('the status of a run counts unpublished steps only until they are published', () => {
    assert.match(text(), / 1 step unpublished$/m);
    assert.doesNotMatch(text({ policy: { ...manifest!, version: 8 } }), /unpublished/);
  });

  it('the status of a run shows the solved shares of new and of rehearsed problems in the place of one share', () => {
    const solved = (metrics: Record<string, number>) =>
      text({ steps: [{ v: 1, kind: 'step', at: 90_000, step: 8, version: 8, metrics }] });
    const all = { 'env/all/correct': 0.37 };
    assert.match(solved(all), /^ {2}solved 37\.0 %$/m);
    const shares = { ...all, 'env/new/correct': 0.196, 'env/rehearsal/correct': 0.712 };
    assert.match(solved(shares), /^ {2}solved new 19\.6 % {2}rehearsal 71\.2 %$/m);
  });

  it('the status of a run on examples shows their logprob and how often they were seen', () => {
    const metrics = { 'sft/nll': 0.1234, 'sft/epoch': 1.5 };
    const steps = [{ v: 1, kind: 'step', at: 90_000, step: 8, version: 8, metrics } as const];
    assert.match(text({ steps }), /^ {2}nll 0\.123 {2}epoch 1\.50$/m);
  });

  it('the status of a run says how the run ended, and that its actors ended with it', () => {
    const ended = (reason: string) =>
      text({
        leader: undefined,
        policy: { ...manifest!, version: 8 },
        end: { v: 1, at: 95_000, kind: 'end', summary: { reason } },
      });
    assert.match(ended('max_minutes'), /^run r has ended: its time was up\n/);
    assert.match(ended('diverged'), /^run r has ended: it was given up, since training diverged\n/);
    assert.match(ended('max_minutes'), /^actor-0 .* {2}- {2}ended$/m); // no longer with groups in flight
    assert.match(text(), /^actor-0 .* {2}silent for 1 min 0 s$/m);
  });

  it('the status of a run whose resume was killed before its first step is stopped, and of one that was refused ended', () => {
    const end = { v: 1, at: 95_000, kind: 'end', summary: { reason: 'max_steps' } } as const;
    const lead = (at: number) => ({ v: 1, at, kind: 'leader', holder: 'learner' }) as const;
    const leader = { v: 1, holder: 'learner', renewedAt: 96_500 } as const;
    const phase = (over: Partial<RunState>, isStopped = false) =>
      reportOf(state({ end, lead: lead(96_000), ...over }), isStopped).phase;
    assert.equal(phase({ leader }), 'training');
    assert.equal(phase({ leader, at: 200_000 }), 'stopped');
    assert.equal(phase({ leader }, true), 'stopped'); // its store is read at a server of its own
    assert.equal(phase({ leader: undefined }), 'ended'); // the learner has released the lease
    assert.equal(phase({ leader, lead: lead(10_000) }, true), 'ended'); // killed right after the end
    assert.equal(phase({ leader: undefined, end: { ...end, at: 80_000 } }), 'stopped');
  });

  it('the status of a run breaks no terminal line and reports no ended process as waiting', () => {
    const idle = (seconds: number) => ({ 'actors/live': 1, 'actors/idle_seconds/ticket': seconds });
    const step = (at: number, metrics: Record<string, number>) =>
      ({ v: 1, kind: 'step', at: 1_000 * at, step: at, version: at, metrics }) as const;
    const steps = [step(80, idle(0)), step(90, idle(9))];
    const widest = Math.max(
      ...text({ steps })
        .split('\n')
        .map(({ length }) => length),
    );
    assert(widest <= 100, String(widest));
    assert.match(text({ steps }), /^who waits, over 10 s of steps:\n {2}the actors wait 90 %/m);
    const end = { v: 1, at: 95_000, kind: 'end', summary: {} } as const;
    assert.match(text({ steps, end, leader: undefined }), /^who waited, over/m);
  });
});
