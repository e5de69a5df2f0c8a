import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { auditFiles, type FilesEvidence } from './audit-files.js';

const counts = { issued: 4, trained: 4, skippedZeroVariance: 0, stale: 0, dead: 0, outstanding: 0 };
const metricsOf = (step: number) => ({ 'loss/sum': -step / 2, 'staleness/max': step - 1 });
const lineOf = (step: number, over: object = {}) =>
  `${JSON.stringify({ step, version: step, time: new Date(step).toISOString(), ...metricsOf(step), ...over })}\n`;
const summary = {
  ...{ reason: 'max_steps', steps: 2, version: 2, groups: counts, staleness: { max: 1 } },
  eval: null,
};
const sound: FilesEvidence = {
  metrics: lineOf(1) + lineOf(2),
  summary: JSON.stringify(summary),
  events: [1, 2].map((step) => {
    const told = { kind: 'step', step, version: step, metrics: metricsOf(step) } as const;
    return { v: 1, at: step, ...told };
  }),
  ledger: { step: 2, version: 2, counts },
  hasEvaluations: false,
  lossSums: [-0.5, -1],
  staleness: [0, 1],
};

describe("the auditor of a run's files", () => {
  it('the file auditor finds nothing if all files agree', () => {
    assert.deepEqual(auditFiles(sound), []);
  });

  const withMetrics = (metrics: string) => ({ ...sound, metrics });
  const withSummary = (over: object) => ({
    ...sound,
    summary: JSON.stringify({ ...summary, ...over }),
  });
  const planted: readonly [what: string, evidence: FilesEvidence, found: RegExp][] = [
    ['a step that is missing', withMetrics(lineOf(1)), /^metrics.jsonl tells of step 2 0 times$/m],
    ['one that is there twice', withMetrics(lineOf(1) + lineOf(2) + lineOf(2)), /step 2 2 times/],
    ['steps out of order', withMetrics(lineOf(2) + lineOf(1)), /step 1 stands behind step 2/],
    [
      'a step that did not survive',
      withMetrics(lineOf(1) + lineOf(2) + lineOf(3)),
      /tells of step 3; the last one is 2/,
    ],
    [
      'a version that does not rise',
      withMetrics(lineOf(1) + lineOf(2, { version: 1 })),
      /step 2 made version 1, the one before 1/,
    ],
    ['half a line', withMetrics(`${lineOf(1)}${lineOf(2)}{"step":`), /in the middle of a line/],
    ['a line that is none', withMetrics(`${lineOf(1)}what\n${lineOf(2)}`), /line 2 .* is none/],
    [
      'a line without an event',
      withMetrics(lineOf(1) + lineOf(2, { more: 1 })),
      /step 2 of metrics.jsonl is in no event/,
    ],
    [
      'a step of weights that did not survive',
      { ...sound, lossSums: [-0.5, -3] },
      /step 2 of metrics.jsonl has the loss -1; the surviving weights had -3/,
    ],
    [
      'a wrong staleness',
      { ...sound, staleness: [0, 2] },
      /step 2 of metrics.jsonl has the staleness 1; it was 2/,
    ],
    ['no summary', { ...sound, summary: '' }, /summary.json is none/],
    ['a summary of other steps', withSummary({ steps: 1 }), /the steps 1, not 2/],
    ['one of another version', withSummary({ version: 1 }), /the version 1, not 2/],
    ['one with another reason', withSummary({ reason: 'stopped' }), /the reason "stopped"/],
    [
      'a summary with other ticket counts',
      withSummary({ groups: { ...counts, trained: 3 } }),
      /the groups .*"trained":3/,
    ],
    ['one with another staleness', withSummary({ staleness: { max: 2 } }), /staleness 2, not 1/],
    ['one without its evaluations', { ...sound, hasEvaluations: true }, /evaluations false/],
  ];
  for (const [what, evidence, found] of planted) {
    it(`the file auditor finds ${what}`, () => {
      assert.match(auditFiles(evidence).join('\n'), found);
    });
  }

  it('the file auditor works without a readable history', () => {
    const { events: _events, lossSums: _sums, staleness: _staleness, ...files } = sound;
    assert.deepEqual(auditFiles(files), []);
  });
});
