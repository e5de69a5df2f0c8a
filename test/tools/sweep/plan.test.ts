import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cellsOf, planRuns, resolveSettings, type PlannedRun } from '../../../tools/sweep/plan.js';
import { LearnerConfig } from '../../../learner/config.js';
import { sweepOf } from './values.js';

const endPanel = (x: string) => ({ kind: 'end', title: 't', measure: 'solved', x });
const plan = (over: object = {}) =>
  planRuns(sweepOf(over), () => ({ groupsPerBatch: 4, groupSize: 4 }));

describe('the cells of an experiment', () => {
  it('the cells of an experiment are all combinations that are not skipped, the last axis fastest', () => {
    assert.deepEqual(
      cellsOf(sweepOf()).map(({ choice }) => choice),
      [
        { lag: '0', correction: 'cispo' },
        { lag: '4', correction: 'cispo' },
        { lag: '4', correction: 'none' },
      ],
    );
  });

  it('the cells of an experiment have the common settings and those of their values', () => {
    assert.deepEqual(cellsOf(sweepOf()).at(-1)!.settings, {
      ...{ groupSize: 4, loraRank: 8, maxStepsOffPolicy: 4 },
      ...{ loss: 'cross_entropy', allowUncorrected: true },
    });
  });

  it('the cells of an experiment end by the limits of their value, else by those of the experiment', () => {
    const values = [
      { label: 'a', settings: { loraRank: 1 } },
      { label: 'b', settings: { loraRank: 2 }, limits: { steps: 3 } },
    ];
    const only = { skip: [], comparisons: [], panels: [endPanel('rank')], short: undefined };
    const sweep = sweepOf({ axes: [{ name: 'rank', values }], limits: { minutes: 1 }, ...only });
    const limits = ({ settings: { maxSteps, maxMinutes } }: PlannedRun) => [maxSteps, maxMinutes];
    const runs = planRuns(sweep, () => ({ groupsPerBatch: 4, groupSize: 4 }));
    assert.deepEqual(runs.slice(0, 2).map(limits), [
      [undefined, 1],
      [3, undefined],
    ]);
  });

  it('the cells of an experiment cannot have a setting from two axes', () => {
    const axes = ['a', 'b'].map((name) => ({ name, setting: 'loraRank', values: [1] }));
    const rest = {
      skip: [],
      comparisons: [],
      panels: [endPanel('a')],
      short: undefined,
    };
    assert.throws(() => cellsOf(sweepOf({ axes, ...rest })), /a and b both set loraRank/);
  });
});

describe('the runs of an experiment', () => {
  it('the runs of an experiment are all cells with the first seed, then with the next', () => {
    const runs = plan();
    assert.deepEqual(
      runs.map(({ choice, seed }) => `${choice['lag']!} ${choice['correction']!} ${seed}`),
      ['0 cispo 0', '4 cispo 0', '4 none 0', '0 cispo 1', '4 cispo 1', '4 none 1'],
    );
    assert.deepEqual(
      runs.map(({ settings }) => settings['seed']),
      [0, 0, 0, 1, 1, 1],
    );
  });

  it('the runs of an experiment train on the same number of samples, whatever the size of a step', () => {
    const [run] = plan();
    assert.equal(run!.samplesPerStep, 16);
    const { maxSteps, evalEveryVersions, evalProblems, evalSamples } = run!.settings;
    assert.deepEqual([maxSteps, evalEveryVersions, evalProblems, evalSamples], [4, 2, 4, 2]);
    const larger = planRuns(sweepOf(), ({ maxStepsOffPolicy }) => ({
      groupsPerBatch: maxStepsOffPolicy === 4 ? 8 : 2,
      groupSize: 4,
    }));
    assert.deepEqual(
      larger.slice(0, 2).map(({ settings }) => settings['maxSteps']),
      [8, 2],
    );
  });

  it('the runs of an experiment have steps or minutes if the file gives them, and no evaluations in between', () => {
    const [run] = plan({ limits: { steps: 9, minutes: 2 }, evaluation: {} });
    const { maxSteps, maxMinutes, evalEveryVersions, evalProblems } = run!.settings;
    assert.deepEqual([maxSteps, maxMinutes, evalEveryVersions, evalProblems], [9, 2, 0, 1_024]);
  });

  it('the runs of an experiment cannot train on part of a step', () => {
    assert.throws(
      () => plan({ limits: { samples: 65 } }),
      /the limit is 65 samples, not a whole number of steps where lag 0, correction cispo: a step has 16/,
    );
  });

  it('the runs of an experiment include those that others are compared with', () => {
    const comparisons = [{ measure: 'solved', against: { lag: 0 } }];
    assert.throws(
      () => plan({ comparisons }),
      /compares lag 4, correction none with lag 0, correction none, which is skipped/,
    );
  });

  it('the runs of an experiment are named by their values and by all of their settings', () => {
    const names = plan().map(({ name }) => name);
    assert.match(names[0]!, /^0-cispo-s0-[0-9a-f]{6}$/);
    assert.deepEqual(
      plan().map(({ name }) => name),
      names,
    );
    const others = plan({ settings: { groupSize: 4, loraRank: 9 } }).map(({ name }) => name);
    assert.equal(new Set([...names, ...others]).size, 12);
  });

  it('the runs of an experiment with long labels and large seeds have names that runs may have', () => {
    const values = [{ label: 'x'.repeat(40), settings: {} }];
    const only = { skip: [], comparisons: [], panels: [endPanel('arm')], short: undefined };
    const [run] = plan({ axes: [{ name: 'arm', values }], seeds: [123_456_789], ...only });
    assert.match(run!.name, /^x{30}-s123456789-[0-9a-f]{6}$/);
  });

  it('the runs of an experiment are validated as offbeat up would validate them', () => {
    const resolve = (over: object) =>
      planRuns(sweepOf(over), (settings) => resolveSettings(LearnerConfig, settings));
    assert.equal(
      resolve({ limits: { samples: 512 }, evaluation: { problems: 4 } })[0]!.settings['maxSteps'],
      8,
    ); // 16 groups by default
    assert.throws(() => resolve({ settings: { loraRankk: 8 } }), /--lora-rankk is not a flag; did/);
    assert.throws(() => resolve({ settings: { groupSize: 1 } }), /--group-size .* is "1"/);
  });
});
