import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { StatTable } from '../../../learner/report/stat-table.js';

interface Data {
  readonly lengths: readonly number[];
  readonly ratio?: number;
}

const ratio = {
  prometheus: 'test_ratio',
  help: 'A ratio.',
  by: { kind: 'own', staleness: 'all' },
  parts: ['staleness', 'substep'],
};

describe('StatTable', () => {
  const table = new StatTable<Data>([
    { ...ratio, jsonl: 'ratio', of: (data) => data.ratio },
    { ...ratio, by: { ...ratio.by, kind: 'half' }, of: (data) => data.ratio && data.ratio / 2 },
    {
      jsonl: 'length/mean',
      jsonlMax: 'length/max',
      prometheus: 'test_length',
      help: 'Lengths.',
      buckets: [1, 4],
      of: ({ lengths }) => lengths,
    },
    {
      jsonl: 'typical_length',
      prometheus: 'test_typical_length',
      help: 'Their mean.',
      of: (data) => data.lengths,
    },
    { jsonl: 'count', parts: ['staleness'], of: ({ lengths }) => lengths.length },
  ]);
  const exported = async (name: string) =>
    (await register.getSingleMetric(name)!.get()).values.map(({ labels, value }) => [
      ...Object.values(labels),
      value,
    ]);

  it('a table records every number under the key and the metric of its row', async () => {
    assert.deepEqual(table.record({ lengths: [1, 2, 6], ratio: 0.5 }), {
      ratio: 0.5,
      'length/mean': 3,
      'length/max': 6,
      typical_length: 3,
      count: 3,
    });
    assert.deepEqual(await exported('test_ratio'), [
      ['own', 'all', 0.5],
      ['half', 'all', 0.25],
    ]);
    assert.deepEqual(await exported('test_typical_length'), [[3]]); // the gauge has the mean
    const histogram = await exported('test_length'); // the histogram has each value
    assert.deepEqual(histogram, [[1, 1], [4, 2], ['+Inf', 3], [9], [3]]);
  });

  it('a table reports the parts of a step and exports those whose kind is a label', async () => {
    table.record({ lengths: [], ratio: 1 });
    const data = (ratio: number) => ({ lengths: [7], ratio });
    const byStaleness = table.recordParts('staleness', [[0, data(2)]]);
    assert.deepEqual(byStaleness, { 'ratio/staleness_0': 2, 'count/staleness_0': 1 });
    assert.deepEqual(table.recordParts('substep', [[1, data(3)]]), { 'ratio/substep_1': 3 });
    const values = await exported('test_ratio');
    assert.deepEqual(values.slice(2), [
      ['own', '0', 2],
      ['half', '0', 1],
    ]);
  });

  it('a table leaves out numbers that a step lacks and clears the parts of the step before', async () => {
    const { ratio, ...others } = table.record({ lengths: [1] });
    assert.equal(ratio, undefined);
    assert.equal(others['count'], 1);
    assert.deepEqual(await exported('test_ratio'), []);
  });

  it('a table replaces a placeholder in a key by the value of the label', async () => {
    const depths = new StatTable<number>([
      { jsonl: 'depth/{queue}', prometheus: 'test_depth', help: 'Depth.', of: (depth) => depth },
    ]);
    assert.deepEqual(depths.record(4, { queue: 'scored' }), { 'depth/scored': 4 });
    assert.deepEqual(await exported('test_depth'), [['scored', 4]]);
  });
});
