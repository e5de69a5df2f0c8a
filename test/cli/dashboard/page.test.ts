import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { curvesOf } from '../../../cli/dashboard/page/curves.js';
import { livePage, reportPage, partsOf } from '../../../cli/dashboard/page/document.js';
import { flowOf } from '../../../cli/dashboard/run/flow.js';
import { evalResult } from '../../support/messages.js';
import { leaseAfter, runView, sampled, snapshot, stepPoint } from '../../support/run-view.js';

const hostile = '<img src=x onerror="alert(1)"></pre><script>alert(2)</script>&amp;';

describe('the page of a run', () => {
  const state = runView();

  it('the page of a run has a section for every required topic', () => {
    const markup = livePage(state);
    for (const id of partsOf(state).keys()) {
      if (id !== 'title') assert.match(markup, new RegExp(`id="${id}"`));
    }
    assert.match(
      markup,
      /Is it learning\?.*Is it off-policy\?.*The flow.*Who waits.*Actors.*What does it cost\?.*newest/,
    );
  });

  it('the page of a run has a heading, a description and a captioned table for every plot', () => {
    const parts = partsOf(state);
    for (const { id, title } of curvesOf(state.history, state.config)) {
      const plot = parts.get(`plot-${id}`)!;
      assert.match(plot, new RegExp(`<h3 id="${id}-title">${title}</h3>`));
      assert.match(plot, /<svg [^>]*role="img" aria-label="[^"]{20}/);
      assert.match(plot, new RegExp(`<caption>${title}</caption>`));
    }
    assert.match(parts.get('plot-reward')!, /mean of all answers: 0.01 at step 1, 0.05 at step 5/);
  });

  it('the page of a run shows the solved shares of new and of rehearsed problems in the place of one share', () => {
    const shares = { 'env/new/correct': 0.196, 'env/rehearsal/correct': 0.712 };
    const steps = [1, 2].map((step) => stepPoint(step, shares));
    const linesOf = (of: typeof steps) => {
      const curves = curvesOf({ ...state.history, steps: of, evals: [] }, state.config);
      return curves.find(({ id }) => id === 'solved')!.series.map(({ name }) => name);
    };
    assert.deepEqual(linesOf([stepPoint(1)]), ['training']);
    assert.deepEqual(linesOf(steps), ['training, new', 'training, rehearsal']);
    const headline = partsOf(runView({ history: { ...state.history, steps } })).get('headline')!;
    assert.match(
      headline,
      />Solved<.*?>19\.6\u00A0%<.*?>new problems in training; rehearsal 71\.2\u00A0%</,
    );
  });

  it('the page of a run that was resumed shows an evaluation at its step, which is less than its version', () => {
    const steps = [1, 2, 3].map((step) => ({ ...stepPoint(step), version: step < 3 ? step : 5 }));
    const evals = [0, 2, 5].map((version) => evalResult({ version }));
    const curves = curvesOf({ ...state.history, steps, evals }, state.config);
    const heldOut = curves
      .find(({ id }) => id === 'solved')!
      .series.find(({ name }) => name === 'held-out')!;
    assert.deepEqual(
      heldOut.points.map(({ x }) => x),
      [0, 2, 3],
    );
  });

  it('the page of a run describes the flow in words, too', () => {
    const flow = partsOf(state).get('flow')!;
    assert.match(
      flow,
      /aria-label="The learner issues 4.0\/s tickets, 2 waiting and 1 in flight\./,
    );
    assert.match(flow, /<caption>The queues; 0 dead letters<\/caption>/);
    assert.match(partsOf(state).get('actors')!, /actor-1<\/th><td>sampling<\/td>/);
  });

  it('the page of a run shows the engines that actors sample with, and why one is not used', () => {
    assert.doesNotMatch(partsOf(state).get('actors')!, /Engines/);
    const engine = { release: '0.32.0', running: 48, kvUsage: 0.4, adapters: 2, slots: 6 };
    const engines = [
      { ...engine, url: 'http://gpu-0:8000' },
      { url: 'http://gpu-1:8000', trouble: hostile, adapters: 0, slots: 6 },
    ];
    const flow = flowOf([snapshot(3, [leaseAfter(3, { engines })])]);
    const actors = partsOf(runView({ flow })).get('actors')!;
    assert.match(actors, /gpu-0:8000<\/th><td>actor-0<\/td><td>in use<\/td><td>0\.32\.0<\/td>/);
    assert.match(actors, />48<\/td>.*>40(\.0)?.%<\/td>.*>2 of 6<\/td>/);
    assert.match(actors, /out of use: &lt;img src=x/);
    assert.doesNotMatch(actors, /<img/);
  });

  it('the page of a run has the same sections before the first step', () => {
    const empty = { steps: [], evals: [], quarantined: [], summary: undefined };
    const parts = partsOf(runView({ history: empty, flow: undefined, samples: [] }));
    assert.deepEqual([...parts.keys()], [...partsOf(state).keys()]);
    assert.match(parts.get('plot-reward')!, /no result yet/);
  });

  it('the page of a run escapes the texts of a model everywhere', () => {
    const group = sampled(hostile, { prompt: hostile, ticketId: hostile });
    const page = livePage(runView({ run: hostile, samples: [group] }));
    assert.doesNotMatch(page, /<img|<script>|<\/pre><script/);
    assert.match(page, /&lt;img src=x onerror=&quot;alert\(1\)&quot;&gt;/); // the prompt
    assert.match(page, />&lt;<\/span><span [^>]*>i<\/span>/); // and the tokens of the answer
  });

  it('the page of a run gives the probability of each token as a color and in a table', () => {
    const samples = partsOf(state).get('samples')!;
    assert.match(samples, /class="t p0" title="100.0.%, logprob 0.000, version 6">7</);
    assert.match(samples, /class="t p2" title="77.9.%, logprob -0.250, version 6">\*</);
    assert.match(samples, /<caption>Tokens of answer 2<\/caption>/);
  });

  it('the page of a run needs no browser feature that its content policy forbids', () => {
    assert.doesNotMatch(livePage(state), / style=|<style|javascript:| on[a-z]+=/);
  });
});

describe('the report of a run', () => {
  const report = reportPage(runView());

  it('the report of a run is one file that loads no other', () => {
    assert.doesNotMatch(report, /<script|<link|<img|@import|url\((?!#)/);
    const addresses = [...report.matchAll(/https?:\/\/[^"' <)]+/g)].map(([address]) => address);
    assert.deepEqual(addresses, []);
  });

  it('the report of a run allows only its own style in its content policy', () => {
    const [, style] = /<style>([^]*?)<\/style>/.exec(report)!;
    const digest = createHash('sha256').update(style!).digest('base64');
    assert.match(report, /content="default-src 'none'; style-src 'sha256-/);
    assert(report.includes(`style-src 'sha256-${digest}'`));
  });

  it('the report of a run has the plots of the page', () => {
    const plots = (text: string) =>
      [...text.matchAll(/<section id="(plot-\w+)"/g)].map(([, id]) => id);
    assert.equal(plots(report).length, 12);
    assert.deepEqual(plots(report), plots(livePage(runView())));
  });
});

describe('a curve with many points', () => {
  it('a curve with many points is thinned to means, with a band from the smallest to the largest', () => {
    const entropies = (count: number) => {
      const steps = Array.from({ length: count }, (_, i) => stepPoint(i, { entropy: i % 2 }));
      const curves = curvesOf({ ...runView().history, steps }, undefined);
      return curves.find(({ id }) => id === 'entropy')!.series[0]!.points;
    };
    const thin = entropies(250);
    assert.equal(thin.length, 84);
    assert.deepEqual(thin.at(-1), { x: 249, y: 1 }); // as the headline has it
    assert.deepEqual(thin[1], { x: 5, y: 2 / 3, low: 0, high: 1 });
    assert.deepEqual(entropies(3), [
      { x: 0, y: 0 },
      { x: 1, y: 1 },
      { x: 2, y: 0 },
    ]);
  });
});
