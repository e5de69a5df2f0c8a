import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { audit, type Evidence } from './audit.js';
import { Lineages, type Operation } from './lineage.js';

/**
 * A run of two groups per step, each a minibatch. Model a: version 0, steps 1 and 2, a checkpoint at 1, killed
 * after 2. Model b: restored at step 1 and published as version 3, then step 2 again, with others, and saved.
 * Ticket 4 is skipped, ticket 5 dead, ticket 6 sampled by the lost version 2.
 */
const operations: Operation[] = [
  { model: 'a', seq: 1, kind: 'policy', name: 'policy-000000' },
  { model: 'a', seq: 2, kind: 'pass', groups: ['g0'] },
  { model: 'a', seq: 3, kind: 'pass', groups: ['g1'] },
  { model: 'a', seq: 4, kind: 'step' },
  { model: 'a', seq: 5, kind: 'policy', name: 'policy-000001' },
  { model: 'a', seq: 6, kind: 'state', name: 'state-000001' },
  { model: 'a', seq: 7, kind: 'pass', groups: ['g2'] },
  { model: 'a', seq: 8, kind: 'pass', groups: ['g3'] },
  { model: 'a', seq: 9, kind: 'step' },
  { model: 'a', seq: 10, kind: 'policy', name: 'policy-000002' },
  { model: 'b', seq: 1, kind: 'load', name: 'tinker://a/weights/state-000001' },
  { model: 'b', seq: 2, kind: 'policy', name: 'policy-000003' },
  { model: 'b', seq: 3, kind: 'pass', groups: ['g3'] },
  { model: 'b', seq: 4, kind: 'pass', groups: ['g6'] },
  { model: 'b', seq: 5, kind: 'step' },
  { model: 'b', seq: 6, kind: 'policy', name: 'policy-000004' },
  { model: 'b', seq: 7, kind: 'pass', groups: ['g2'] }, // given up: no optimizer step followed it
  { model: 'b', seq: 8, kind: 'state', name: 'state-000002' },
];
const scored: Evidence['scored'] = new Map(
  [0, 1, 2, 3, 4, 6].map((order) => [
    `g${order}`,
    { order, isUniform: order === 4, sampledBy: [order === 6 ? 2 : 0] },
  ]),
);
/** Ticket 2 was too stale, twice. */
const counts = { issued: 8, trained: 4, skippedZeroVariance: 1, stale: 2, dead: 1, outstanding: 0 };
const sound: Evidence = {
  ...{ maxStepsOffPolicy: 1, groupsPerBatch: 2, numSubsteps: 1, numMinibatches: 2 },
  ledger: {
    ...{ step: 2, version: 4, statePath: 'tinker://b/weights/state-000002', counts },
    rewinds: [{ from: 3, to: 1 }],
    ...{ nextOrder: 7, consumedBelow: 6, consumedAbove: [6] },
  },
  issued: new Set([0, 1, 2, 3, 4, 5, 6]),
  scored,
  dead: new Map([[5, 1]]),
  versions: [0, 1, 2, 3],
  operations,
};

const withLedger = (over: Partial<Evidence['ledger']>): Evidence => ({
  ...sound,
  ledger: { ...sound.ledger, ...over },
});
const withOperations = (change: (all: Operation[]) => Operation[]): Evidence => ({
  ...sound,
  operations: change([...operations]),
});

const auditOf = (evidence: Evidence) => audit(evidence, new Lineages(evidence.operations));

describe('the auditor of a run', () => {
  it('the auditor finds nothing in a sound run and reports its counts', () => {
    assert.deepEqual(auditOf(sound), {
      violations: [],
      trained: 4,
      largestStaleness: 1,
      lost: 1, // g2, trained into weights that did not survive
      stalenessOfSteps: [0, 1],
    });
  });

  it('the auditor counts an operation that was sent twice once', () => {
    assert.deepEqual(auditOf(withOperations((all) => [...all, ...all])).violations, []);
  });

  const planted: readonly [what: string, evidence: Evidence, found: RegExp][] = [
    [
      'a group that is trained twice',
      withOperations((all) =>
        all.map((each) => (each.groups?.[0] === 'g6' ? { ...each, groups: ['g1'] } : each)),
      ),
      /^ticket 1 was trained twice$/m,
    ],
    [
      'a group that was trained without a score',
      { ...sound, scored: new Map([...scored].filter(([key]) => key !== 'g1')) },
      /trained on a group that nobody scored/,
    ],
    [
      'a ticket that vanished',
      { ...sound, dead: new Map() },
      /^ticket 5 has ended, and nothing tells how$/m,
    ],
    [
      'a ticket that was never issued',
      { ...sound, issued: new Set([0, 1, 2, 3, 4, 5]) },
      /ticket 6 is/,
    ],
    ['a ticket left over', withLedger({ consumedAbove: [] }), /^ticket 6 has not ended$/m],
    [
      'ticket counts that do not balance',
      withLedger({ counts: { ...counts, dead: 2 } }),
      /^8 tickets issued, 9 accounted for$/m,
    ],
    [
      'tickets outstanding at the end',
      withLedger({ counts: { ...counts, trained: 3, outstanding: 1 } }),
      /^1 tickets are outstanding[^]*the ledger says 3 groups trained, the weights 4/m,
    ],
    [
      'a group that was omitted silently',
      withLedger({ counts: { ...counts, issued: 7, stale: 0, skippedZeroVariance: 2 } }),
      /^1 groups with variance were not trained, but only 0 were stale: of tickets \d+; dead letters of 5; the ledger/m,
    ],
    [
      'a ledger that names the wrong weights',
      withLedger({ statePath: 'tinker://a/weights/state-000001' }),
      /^the ledger is at step 2, its weights at step 1$/m,
    ],
    [
      'an optimizer step of half a batch',
      withOperations((all) => all.filter(({ model, seq }) => model !== 'b' || seq !== 3)),
      /^optimizer step 1 of step 2 had minibatches of 1 groups, not 2 of 1$/m,
    ],
    [
      'a step with fewer optimizer steps than it should have',
      { ...sound, numSubsteps: 2, numMinibatches: 1 },
      /^step 1 has 1 optimizer steps, not 2$|^optimizer step 1 of step 1 had minibatches/m,
    ],
    [
      'a version that falls',
      { ...sound, versions: [0, 1, 3, 2] },
      /^version 2 was published after 3$/m,
    ],
    [
      'a version that was published twice',
      { ...sound, versions: [0, 1, 1] },
      /^version 1 was publ/m,
    ],
    [
      'a group that is too stale by the true descent of its weights across a fork',
      { ...sound, maxStepsOffPolicy: 0 },
      /^ticket 6, sampled by version 2, was trained 1 steps from it; 0 are allowed$/m,
    ],
    [
      'a ledger that has forgotten a crash',
      withLedger({ rewinds: [] }),
      /^version 1 is 1 steps from the last weights, by the ledger's rewinds 3$/m,
    ],
    [
      'a version whose weights were never saved',
      { ...sound, versions: [0, 1, 2, 3, 7] },
      /^version 7 was announced, and its weights never were saved$/m,
    ],
    [
      'a group of a version that never existed',
      {
        ...sound,
        scored: new Map([...scored, ['g6', { order: 6, isUniform: false, sampledBy: [9] }]]),
      },
      /^ticket 6 was sampled by version 9, which never was$/m,
    ],
  ];
  for (const [what, evidence, found] of planted) {
    it(`the auditor finds ${what}`, () => {
      assert.match(auditOf(evidence).violations.join('\n'), found);
    });
  }
});

describe('the descent of weights', () => {
  const lineages = new Lineages(operations);

  it('the descent of weights goes back over every restart', () => {
    const survivor = lineages.saved('tinker://b/weights/state-000002');
    assert.deepEqual(
      lineages.chain(survivor).map(({ model, before }) => [model, before]),
      [
        ['a', 6],
        ['b', 8],
      ],
    );
    assert.equal(lineages.depth(survivor), 2);
  });

  it('the distance between weights counts steps back to the fork and forward again', () => {
    const [lost, restored] = [lineages.published(2)!, lineages.published(3)!];
    assert.equal(lineages.distance(lost, restored), 1);
    const end = lineages.saved('tinker://b/weights/state-000002');
    assert.equal(lineages.distance(lost, end), 2);
    assert.equal(lineages.distance(lineages.published(0)!, end), 2);
  });

  it('optimizer steps between two publications are substeps of one step', () => {
    const twice: Operation[] = [
      { model: 'a', seq: 1, kind: 'policy', name: 'policy-000000' },
      { model: 'a', seq: 2, kind: 'pass', groups: ['g0'] },
      { model: 'a', seq: 3, kind: 'step' },
      { model: 'a', seq: 4, kind: 'pass', groups: ['g1'] },
      { model: 'a', seq: 5, kind: 'step' },
      { model: 'a', seq: 6, kind: 'policy', name: 'policy-000001' },
      { model: 'a', seq: 7, kind: 'state', name: 'state-000001' },
    ];
    const substeps = new Lineages(twice);
    const [step, ...more] = substeps.steps(substeps.saved('tinker://a/weights/state-000001'));
    assert.deepEqual(more, []);
    assert.deepEqual(
      step!.substeps.map((passes) => passes.flatMap(({ groups }) => groups)),
      [['g0'], ['g1']],
    );
    assert.deepEqual(step!.from, { model: 'a', before: 2 });
    assert.equal(substeps.distance(substeps.published(0)!, substeps.published(1)!), 1);
  });

  it('the descent of weights excludes passes that a learner gave up', () => {
    const survivor = lineages.saved('tinker://b/weights/state-000002');
    const groups = lineages.history(survivor).flatMap(({ groups = [] }) => groups);
    assert.deepEqual(groups, ['g0', 'g1', 'g3', 'g6']);
  });

  it('the descent of weights refuses a state that was never saved', () => {
    assert.throws(
      () => lineages.saved('tinker://b/weights/state-000009'),
      /the backend never saved/,
    );
  });
});
