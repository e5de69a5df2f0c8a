import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { readSweepFile } from '../../../tools/sweep/sweep-file.js';
import { planRuns, resolveSettings } from '../../../tools/sweep/plan.js';
import { evaluationsOf } from '../../../tools/sweep/run-one.js';
import { LearnerConfig } from '../../../learner/config.js';
import { sweepJson } from './values.js';

describe('the file of an experiment', () => {
  let path: string;
  let folder: string;
  const read = async (over: object, isShort = false) => {
    await writeFile(path, JSON.stringify({ ...sweepJson, ...over }));
    return readSweepFile(path, isShort);
  };

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-sweep-file-'));
    path = join(folder, 'e.json');
  });
  after(() => rm(folder, { recursive: true }));

  it('the file of an experiment names each value of an axis, a plain value by itself', async () => {
    const { axes } = await read({});
    assert.deepEqual(axes[0], {
      name: 'lag',
      values: [
        { label: '0', settings: { maxStepsOffPolicy: 0 } },
        { label: '4', settings: { maxStepsOffPolicy: 4 } },
      ],
    });
  });

  it('the file of an experiment names further evaluations, each of all runs or of some', async () => {
    const cool = { name: 'cool', settings: { version: 0, temperature: 0.5 }, where: { lag: 4 } };
    const measures = [{ name: 'base', from: 'eval', key: 'pass@64', at: 'cool' }];
    const { furtherEvaluations } = await read({
      ...{
        furtherEvaluations: [cool],
        measures,
        comparisons: [],
        panels: sweepJson.panels.slice(0, 1),
      },
    });
    const namesFor = (lag: string) =>
      evaluationsOf({ choice: { lag, correction: 'none' } }, furtherEvaluations).map(
        ({ name }) => name,
      );
    assert.deepEqual([namesFor('4'), namesFor('0')], [['cool'], []]);
    await assert.rejects(
      read({ measures: [...sweepJson.measures, { ...measures[0], at: 'warm' }] }),
      /measures\.2\.at: there is no evaluation warm; start, end/,
    );
    await assert.rejects(
      read({ furtherEvaluations: [{ ...cool, name: 'end' }] }),
      /furtherEvaluations\.0\.name: the name is taken/,
    );
  });

  it('the file of an experiment has a short form, which is an experiment of another name', async () => {
    const [lag, correction] = sweepJson.axes;
    const longer = { ...lag!, values: [{ label: '4', settings: {}, limits: { minutes: 9 } }] };
    const noSkip = { skip: [], comparisons: [] };
    const shortened = await read({ ...noSkip, axes: [longer, correction] }, true);
    const { name, axes, seeds, limits, evaluation } = shortened;
    assert.deepEqual(axes[0]!.values, [{ label: '4', settings: {} }]); // the short limits are for all
    assert.deepEqual([name, seeds, limits], ['staleness-short', [7], { steps: 2 }]);
    assert.deepEqual(
      axes.map(({ values }) => values.map(({ label }) => label)),
      [['4'], ['cispo', 'none']],
    );
    assert.equal(evaluation.problems, 4);
    await assert.rejects(read({ short: undefined }, true), /has no short form/);
  });

  it('the file of an experiment is refused with all mistakes at once', async () => {
    await assert.rejects(
      read({
        axes: [{ name: 'lag', values: [1] }],
        seeds: [],
        limits: {},
        frob: 1,
        settings: { 'max-steps': 3 },
      }),
      /does not describe an experiment:[^]*settings[^]*axes\.0\.values\.0: name the setting[^]*seeds[^]*limits: say when a run ends[^]*"frob"/,
    );
    await assert.rejects(read({ limits: { samples: 1, steps: 1 } }), /give samples or steps/);
  });

  it('the file of an experiment is refused if it refers to an axis, a label or a measure that does not exist', async () => {
    const wrong = {
      skip: [{ lag: 7 }],
      comparisons: [{ measure: 'entropy', against: { lagg: 0 } }],
      panels: [{ kind: 'end', title: 't', measure: 'reward', x: 'time' }],
    };
    await assert.rejects(
      read(wrong),
      /skip\.0\.lag: lag is never 7; 0, 4[^]*no axis lagg; lag, correction[^]*only measures from eval[^]*no axis time[^]*no measure reward/,
    );
  });

  it('the file of an experiment is refused if a measure needs more answers than its evaluation has', async () => {
    const pass = (at: string) => [{ name: at, from: 'eval', key: 'pass@4', at }];
    await assert.rejects(
      read({ measures: [...sweepJson.measures, ...pass('end')] }),
      /measures\.2\.key: pass@4 needs 4 answers, and the evaluation end has 2; give it more samples/,
    );
    const more = { name: 'more', settings: { samples: 3 } };
    await assert.rejects(
      read({ measures: [...sweepJson.measures, ...pass('more')], furtherEvaluations: [more] }),
      /the evaluation more has 3/,
    );
  });

  it('the file of an experiment is refused if it is not JSON or does not exist', async () => {
    await writeFile(path, '{');
    await assert.rejects(readSweepFile(path, false), /cannot read the experiment in .*e\.json/);
    await assert.rejects(readSweepFile(`${path}x`, false), /cannot read the experiment/);
  });
});

describe('the experiments of this project', () => {
  const folder = new URL('../../../../docs/experiments/', import.meta.url).pathname;

  it('the experiments of this project are runs that offbeat up accepts, in full and in short', async () => {
    const files = (await readdir(folder)).filter((file) => file.endsWith('.json'));
    assert(files.length >= 1);
    for (const file of files) {
      for (const isShort of [false, true]) {
        const sweep = await readSweepFile(join(folder, file), isShort);
        const runs = planRuns(sweep, (settings) => resolveSettings(LearnerConfig, settings));
        assert(runs.length >= 2, file);
        assert.equal(new Set(runs.map(({ name }) => name)).size, runs.length);
      }
    }
  });
});
