import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  progressSince,
  quarantineText,
  statusText,
  withEvent,
  heldText,
  refusalText,
  suspicionText,
} from '../../../cli/up/progress.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';

describe('the status line', () => {
  const step = (step: number, at: number, metrics: Record<string, number>): RunEvent => ({
    v: 1,
    kind: 'step',
    at,
    step,
    version: step,
    metrics: { ...metrics, seconds: 10 },
  });
  const after = (events: readonly RunEvent[], since = 0) =>
    events.reduce(withEvent, progressSince(since));
  const metrics = {
    'env/all/reward/total': 0.4321,
    'env/all/correct': 0.371,
    'staleness/mean': 1.25,
    'scored/rollouts': 1024,
  };
  const three = [step(1, 10_000, metrics), step(2, 20_000, metrics), step(3, 30_000, metrics)];

  it('the status line of a run on examples shows their loss, and its end by the epochs', () => {
    const numbers = { 'sft/nll': 0.4567, 'sft/held_out_nll': 0.5, 'sft/examples': 16 };
    const steps = [1, 2, 3].map((n) => step(n, 10_000 * n, { ...numbers, 'sft/epoch': n / 8 }));
    assert.equal(
      statusText(after(steps), { epochs: 1 }, 30_000),
      'step 3  nll 0.457  held-out nll 0.500  epoch 0.38  1.6 examples/s  50 s left',
    );
  });

  it('the status line shows that the run waits until there is a step', () => {
    assert.equal(
      statusText(progressSince(1_000), {}, 66_000),
      'waiting for the first step, 1 min 5 s so far',
    );
  });

  it('the status line shows the numbers of the newest step, the speed and the expected end', () => {
    const line = statusText(after(three), { maxSteps: 9 }, 30_000);
    assert.equal(
      line,
      'step 3/9  reward 0.432  solved 37.1 %  staleness 1.25  102.4 rollouts/s  1 min 0 s left',
    );
    const sooner = statusText(after(three), { maxSteps: 9, maxMinutes: 1 }, 30_000);
    assert.match(sooner, / {2}30 s left$/);
  });

  it('the status line shows the solved shares of new and of rehearsed problems in the place of one share', () => {
    const shares = { 'env/new/correct': 0.196, 'env/rehearsal/correct': 0.712 };
    const progress = after([step(1, 10_000, { ...metrics, ...shares })]);
    const line =
      'step 1  reward 0.432  solved new 19.6 %  rehearsal 71.2 %  staleness 1.25  102.4 rollouts/s';
    assert.equal(statusText(progress, {}, 10_000), line);
    assert.equal(statusText(progress, {}, 10_000, 90), line.replace('  rehearsal 71.2 %', ''));
  });

  it('the status line counts only the time in which the run was up, after a resume and after a crash', () => {
    const hour = 3_600_000;
    const resumed = after(three, hour);
    assert.equal(statusText(resumed, {}, hour + 5_000), 'waiting for the next step, 5 s so far');
    const oneMore = withEvent(resumed, step(4, hour + 20_000, metrics));
    const goal = { maxSteps: 9, maxMinutes: 2 };
    assert.match(
      statusText(oneMore, goal, hour + 20_000),
      /^step 4\/9 .* 102\.4 rollouts\/s {2}50 s left$/,
    );
    const afterCrash = withEvent(oneMore, step(5, 2 * hour, metrics));
    assert.match(
      statusText(afterCrash, { maxSteps: 9 }, 2 * hour),
      / 102\.4 rollouts\/s {2}40 s left$/,
    );
  });

  it('the status line leaves out the least important parts on a narrow screen', () => {
    const progress = after(three.slice(0, 2));
    const within = (columns: number) => statusText(progress, { maxSteps: 9 }, 20_000, columns);
    const shown = [80, 70, 55, 45, 32, 20, 5].map(within);
    assert.deepEqual(shown, [
      'step 2/9  reward 0.432  staleness 1.25  102.4 rollouts/s  1 min 10 s left',
      'step 2/9  reward 0.432  staleness 1.25  1 min 10 s left',
      'step 2/9  reward 0.432  1 min 10 s left',
      'step 2/9  reward 0.432  1 min 10 s left',
      'step 2/9  1 min 10 s left',
      'step 2/9',
      'step 2/9',
    ]);
  });

  it('the status line leaves out numbers that were not measured', () => {
    const bare: RunEvent = { v: 1, kind: 'step', at: 1, step: 1, version: 1, metrics: {} };
    assert.equal(statusText(after([bare]), {}, 5), 'step 1');
  });
});

type QuarantineEvent = Extract<RunEvent, { kind: 'quarantine' }>;

describe('the message about a quarantined actor', () => {
  const event = (gap: number, bound: number, why?: QuarantineEvent['why']) =>
    quarantineText({
      ...{ v: 1, at: 0, kind: 'quarantine', actor: 'actor-1', gap, bound, groups: 4, version: 2 },
      ...(why === undefined ? {} : { why }),
    });

  it('the message about a quarantined actor names the actor, the finding and the consequence', () => {
    const texts: [text: string, found: RegExp][] = [
      [event(0.3, 0.05), /in 4 groups its logprobs were 0\.300 nats .* 0\.050 is the most\./],
      [event(0.3, 0.05, 'gap'), /in 4 groups its logprobs were 0\.300 nats/],
      [event(42.7, 20.7, 'likelihood'), /the chance that they do is below e\^-42\./],
      [event(11.26, 5, 'fleet'), /11\.3 times as far .* and 5 times is the most\./],
      [
        event(2, 2, 'replay'),
        /4 groups its tokens are not those that the random numbers .* choose/,
      ],
      [
        event(21.2, 20.7, 'solve_rate'),
        /it solves more than the other actors do; .* e\^21 groups\./,
      ],
      [event(3, 3, 'impossible'), /no policy can have the logprobs that 4 of its groups claim\./],
    ];
    for (const [text, found] of texts) {
      assert.match(text, /^actor-1 is quarantined: /);
      assert.match(text, found);
      assert.match(text, /What it samples is refused from now on\.$/);
    }
  });

  it('the message about an actor that may select its answers says that it goes on', () => {
    const found = { actor: 'actor-1', why: 'selection', nats: 21, bound: 20.7, groups: 9 } as const;
    assert.match(
      suspicionText({ v: 1, at: 0, kind: 'suspicion', ...found, version: 2 }),
      /^actor-1 may select .* in 9 groups its answers are more or less probable .* It is not quarantined/,
    );
  });
});

describe('the message about a refused version', () => {
  const finding = { version: 3, difference: 0.5, band: 1e-3, mean: 0.1, meanBand: 2e-4, place: 1 };
  const event = { v: 1, at: 0, kind: 'refusal', actor: 'actor-1', ...finding } as const;

  it('the message about a refused version names the server, if it is one of several', () => {
    assert.match(refusalText(event), /^actor-1 does not sample: .* canary of version 3/);
    assert.match(
      refusalText({ ...event, engine: 'http://gpu:8000' }),
      /^actor-1 does not sample with http:\/\/gpu:8000: .* canary of version 3/,
    );
    assert.match(
      refusalText({ ...event, closerTo: 2 }),
      /0\.0002 is the most; it is closer to version 2\)\. Its weights/,
    );
  });
});

describe('the message about held tickets', () => {
  const held = { v: 1, at: 0, kind: 'held', split: 'train', limitSeconds: 60 } as const;

  it('the message about held tickets says how long they are held and when they will be taken back', () => {
    const text = heldText({ ...held, tickets: 1, withdrawn: 0, longestSeconds: 12.4 });
    assert.equal(
      text,
      'actors have kept 1 train ticket for up to 12 s, longer than usual: taken back after 60 s',
    );
  });

  it('the message about held tickets says how many were taken back', () => {
    const text = heldText({ ...held, tickets: 3, withdrawn: 2, longestSeconds: 61 });
    assert.match(text, /kept 3 train tickets for up to 61 s.*: 2 taken back and issued again$/);
  });
});
