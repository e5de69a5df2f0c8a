import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { configDifferences, LearnerConfig, runConfig } from '../../learner/config.js';
import { chooseModel, settleConfig } from '../../learner/checkpoints/run-identity.js';
import { loadConfig } from '../../shared/service/config.js';
import { UserError } from '../../shared/base/errors.js';
import { fitToModel } from '../../shared/run/hyperparameters.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { countdownSpec } from '../support/countdown-task.js';

const load = (...flags: string[]) =>
  loadConfig(LearnerConfig, 'learner', ['--run', 'r', ...flags], {});
/** The same for the embedded model. */
const fit = (...flags: string[]) =>
  fitToModel(load(...flags), { hiddenSize: 128 }, found.task.prompt);
const found = {
  model: { name: 'm', digest: 'a' },
  task: countdownSpec(),
  datasetDigest: 'b',
};

describe("the learner's configuration", () => {
  it('the run configuration has every setting of the loss explicitly', () => {
    const config = RunConfig.parse(runConfig(fit(), found));
    assert.deepEqual(config.loss, {
      name: 'cispo',
      config: { clip_low_threshold: 0, clip_high_threshold: 4 },
    });
    const ppo = runConfig(fit('--loss', 'ppo', '--clip-high', '1.3'), found);
    assert.deepEqual(ppo.loss.config, { clip_low_threshold: 0.8, clip_high_threshold: 1.3 });
    assert.deepEqual(runConfig(fit('--loss=dro'), found).loss.config, { beta: 0.01 });
  });

  it('the run configuration has every bound of a correction explicitly', () => {
    const correctionOf = (...flags: string[]) => runConfig(fit(...flags), found).correction;
    assert.deepEqual(correctionOf(), { weights: { kind: 'none' }, mask: { kind: 'none' } });
    assert.deepEqual(correctionOf('--loss', 'ppo', '--correction', 'token_weights'), {
      weights: { kind: 'token', cap: 2 },
      mask: { kind: 'none' },
    });
    assert.deepEqual(
      correctionOf('--correction=sequence_weights', '--weight-cap=5', '--mask=geometric'),
      {
        weights: { kind: 'sequence', cap: 5 },
        mask: { kind: 'geometric', low: 0.9, high: 1.1 },
      },
    );
  });

  it('the run configuration has the limit of a bound that adapts itself, and nothing new without one', () => {
    const adaptive = RunConfig.parse(runConfig(fit('--max-steps-off-policy', 'auto:16'), found));
    assert.deepEqual([adaptive.maxStepsOffPolicy, adaptive.isBoundAdaptive], [16, true]);
    const fixed = runConfig(fit('--max-steps-off-policy', '4'), found);
    assert.equal(fixed.maxStepsOffPolicy, 4);
    assert(!('isBoundAdaptive' in fixed)); // so that older actors can read it
  });

  it('the run configuration has the learning rate schedule with its final share', () => {
    const scheduleOf = (...flags: string[]) => runConfig(fit(...flags), found).schedule;
    const steady = { kind: 'constant', warmupSteps: 0, finalShare: 1 };
    assert.deepEqual(scheduleOf(), steady);
    assert.deepEqual(scheduleOf('--max-steps=7'), steady); // --max-steps alone has no effect on the schedule
    assert.deepEqual(scheduleOf('--schedule=linear', '--max-minutes=5', '--warmup-steps=3'), {
      kind: 'linear',
      warmupSteps: 3,
      finalShare: 0.1,
    });
  });

  it('the run configuration has a progress at which maxrl ends only if it is set', () => {
    const configOf = (...flags: string[]) => runConfig(fit('--advantage=maxrl', ...flags), found);
    assert.equal(configOf('--maxrl-until=0.6', '--max-steps=7').maxrlUntil, 0.6);
    assert(!('maxrlUntil' in configOf())); // so that older actors can read it
  });

  it('the run configuration has a curriculum only if it is set', () => {
    assert.equal(runConfig(fit('--curriculum=signal'), found).curriculum, 'signal');
    assert(!('curriculum' in runConfig(fit('--curriculum=data'), found)));
  });

  it('the learner accepts a loss without correction if data cannot be stale or something else corrects', () => {
    load('--loss', 'cross_entropy', '--max-steps-off-policy', '0');
    load('--loss', 'cross_entropy', '--mask', 'icepop');
    load('--loss', 'cross_entropy', '--correction', 'token_weights');
    load('--loss', 'cross_entropy', '--allow-uncorrected');
    for (const loss of ['cispo', 'ppo', 'importance_sampling', 'dro']) load('--loss', loss);
  });

  it('the run configuration says which examples a run trains on, and by cross-entropy', () => {
    const examples = { digest: 'c', heldOut: [0, 0, 0] };
    const configOf = (...flags: string[]) => runConfig(fit(...flags), { ...found, examples });
    const { trainOn, supervised, loss } = configOf('--data=solver', '--num-minibatches=3');
    assert.equal(trainOn, 'examples');
    const batch = { by: 'examples', size: 64 };
    assert.deepEqual(supervised, { data: 'solver', digest: 'c', heldOut: 3, batch });
    assert.deepEqual(loss, { name: 'cross_entropy', config: {} });
    const { supervised: packed } = configOf('--data=chats.jsonl', '--batch-tokens=4096');
    assert.deepEqual(packed?.batch, { by: 'tokens', size: 4_096 });
    const { trainOn: usual, supervised: none, loss: usualLoss } = runConfig(fit(), found);
    assert.deepEqual([usual, none, usualLoss.name], ['rollouts', undefined, 'cispo']);
  });

  it('the run configuration says which weights a run starts from', () => {
    const path = 'tinker://a/weights/state-000120';
    assert.deepEqual(runConfig(fit('--from', path, '--from-run', 'sft@120'), found).from, {
      path,
      run: 'sft@120',
    });
    assert.deepEqual(runConfig(fit('--from', path), found).from, { path });
    assert.throws(() => runConfig(fit('--from', 'sft@120'), found), /--from sft@120 .* tinker:/);
  });

  it('a schedule has its end in steps, minutes or epochs', () => {
    for (const end of ['--max-steps=9', '--max-minutes=9', '--epochs=2']) {
      assert.equal(load('--data=solver', '--schedule=cosine', end).schedule, 'cosine');
    }
  });

  const contradictions: [flags: string[], says: RegExp][] = [
    ...['--loss=ppo', '--mask=icepop', '--kl-penalty=0.1', '--stop-kl=2', '--audit-share=0.1'].map(
      (flag): [string[], RegExp] => [
        ['--data=solver', flag],
        new RegExp(`${flag.split('=')[0]!} .* --data trains on examples .* no effect; remove it`),
      ],
    ),
    [['--data=solver', '--groups-per-batch=8'], /--groups-per-batch .* no effect/],
    [['--data=chats.json'], /--data .* ends in \.jsonl/],
    [['--data=solver', '--batch-examples=4', '--batch-tokens=99'], /--batch-tokens .* remove one/],
    [['--epochs=2'], /--epochs .* add --data/],
    [['--from=sft@last'], /--from .* RUN@STEP/],
    [['--from-run=sft@1'], /--from-run .* no --from/],
    [['--advantage=reward'], /--zero-variance/],
    [
      ['--num-minibatches', '5'],
      /--num-minibatches .* must divide --groups-per-batch, which is 64/,
    ],
    [
      ['--max-steps-off-policy', 'auto:0'],
      /--max-steps-off-policy .* whole number of at least 0, or auto:N with N of at least 1/,
    ],
    [['--max-steps-off-policy', 'auto'], /--max-steps-off-policy .* or auto:N/],
    [['--max-steps-off-policy', '-1'], /--max-steps-off-policy .* at least 0/],
    [
      ['--max-steps-off-policy', 'auto:4', '--sample-lag', '1'],
      /--sample-lag .* fixes the age of the data, and --max-steps-off-policy auto:4 lets it change/,
    ],
    [
      ['--window-policy', 'drop', '--max-steps-off-policy', '0'],
      /--window-policy .* nothing to drop one for; choose wait/,
    ],
    [
      ['--window-policy', 'tokens', '--max-steps-off-policy', '0'],
      /--window-policy .* nothing to mask; choose wait/,
    ],
    [
      ['--window-policy', 'tokens', '--sample-lag', '1'],
      /--window-policy .* keeps each answer on one version.*; choose wait or drop/,
    ],
    [
      ['--window-policy', 'tokens', '--correction', 'sequence_weights'],
      /--correction .* trains on a part of an answer, but sequence_weights multiply .*; choose token_weights or in_loss/,
    ],
    [
      ['--window-policy', 'tokens', '--mask', 'geometric'],
      /--mask .* geometric judges the ratios of all its tokens; choose icepop or none/,
    ],
    [['--window-policy', 'tokens', '--mask', 'sequence'], /--mask .* choose icepop or none/],
    [
      ['--window-policy', 'tokens', '--loss', 'dro', '--num-substeps', '2'],
      /--num-substeps .* dro would pull the masked tokens/,
    ],
    [
      ['--tickets-ahead', '3', '--max-steps-off-policy', '0'],
      /--tickets-ahead .* trains synchronously, so all tickets of a version are issued at once; remove it/,
    ],
    [['--tickets-ahead', '3', '--sample-lag', '1'], /--tickets-ahead .* --sample-lag delays them/],
    [['--group-size', '4097'], /--group-size .*4096/],
    [['--num-substeps', '5'], /--num-substeps .* must divide --groups-per-batch, which is 64/],
    [
      ['--num-substeps', '16', '--num-minibatches', '8'],
      /--num-minibatches .* must divide the 4 groups of each of --num-substeps 16/,
    ],
    [
      ['--loss', 'cross_entropy'],
      /cross_entropy corrects nothing, and data may be 2 versions old: .* --allow-uncorrected/,
    ],
    [['--loss', 'dro', '--correction', 'token_weights'], /dro needs the distance/],
    [
      ['--loss', 'dro', '--mask', 'icepop', '--num-substeps', '2'],
      /--num-substeps .* uses the prompt logprobs from before the first substep/,
    ],
    [['--weight-cap', '3'], /--correction in_loss has no weights; remove it/],
    [['--mask-low', '0.1'], /there is no --mask; remove it/],
    [['--mask', 'icepop', '--mask-low', '6'], /it is 5, and must be above --mask-low, which is 6/],
    [
      ['--maxrl-until', '0.5', '--max-steps', '9'],
      /--advantage is mean_centred; choose maxrl, or remove it/,
    ],
    [
      ['--advantage', 'maxrl', '--maxrl-until', '0.5'],
      /--maxrl-until .* needs an end: add --max-steps or --max-minutes/,
    ],
    [['--advantage', 'maxrl', '--maxrl-until', '1', '--max-steps', '9'], /--maxrl-until/],
    [['--length-free', '3'], /there is no --length-penalty/],
    [['--entropy-target', '0.3'], /there is no --entropy-bonus/],
    [['--schedule', 'cosine'], /needs an end: add --max-steps or --max-minutes/],
    [['--final-rate-share', '0.5'], /--schedule constant keeps the learning rate/],
    [['--loss', 'dro', '--clip-high', '2'], /--loss dro clips nothing; remove it/],
    [['--dro-beta', '1'], /--loss cispo has no beta/],
    [
      ['--loss', 'dro', '--normalization', 'token'],
      /--normalization .* dro has a term beside them that would outweigh them; choose none/,
    ],
    [
      ['--loss', 'ppo', '--clip-low', '0.2', '--clip-high', '0.28'],
      /--clip-high .* the ratio itself, which is 1 .*: where a paper says ε = 0\.2, give 0\.8 and 1\.2/,
    ],
    [['--clip-low', '1.5'], /--clip-low .* the ratio itself, which is 1/],
    [
      ['--mask', 'icepop', '--mask-low', '0', '--mask-high', '0.28'],
      /--mask-high .* the ratio itself, which is 1/,
    ],
    [['--mask', 'icepop', '--mask-low', '2'], /--mask-low .* the ratio itself, which is 1/],
    [
      ['--audit-require-draws', '--audit-selection-share', '0'],
      /--audit-require-draws .* --audit-selection-share 0 looks at no group; raise it/,
    ],
    [['--loss', 'ppo', '--clip-low', '1.5'], /must be above --clip-low, which is 1.5/],
    [['--eval-problems', '9', '--test-size', '8'], /is "9": --test-size holds out 8; give --eval/],
    [
      ['--test-size', '8'],
      /: it is 256 by default, but --test-size holds out 8; give --eval-problems 8/,
    ],
    [['--group-size', '1'], /--group-size/],
  ];
  for (const [flags, says] of contradictions) {
    it(`the learner refuses ${flags.join(' ')}`, () => {
      assert.throws(
        () => load(...flags),
        (error) => error instanceof UserError && says.test(error.message),
      );
    });
  }
});

describe('the stored configuration of a run', () => {
  const ours = runConfig(fit(), found);

  it('the stored configuration of an older release means training on rollouts', () => {
    const { trainOn, ...older } = ours;
    assert.equal(trainOn, 'rollouts');
    assert.equal(RunConfig.parse(older).trainOn, 'rollouts');
  });

  it('a run refuses settings other than those it started with', () => {
    assert.deepEqual(settleConfig(ours, undefined), ours);
    assert.deepEqual(settleConfig(ours, ours), ours);
    assert.throws(
      () => settleConfig(runConfig(fit('--group-size', '8'), found), ours),
      /groupSize: stored 16, asked for 8/,
    );
  });

  it('a run whose configuration NATS has lost takes it from the copy in the run folder', () => {
    const copy = runConfig(fit('--group-size', '8'), found);
    assert.throws(() => settleConfig(ours, undefined, copy), /groupSize: stored 8, asked for 16/);
    // The configuration in NATS takes precedence over the copy.
    assert.deepEqual(settleConfig(ours, ours, copy), ours);
  });

  it('the differences of two configurations name every path where either differs', () => {
    const dro = runConfig(fit('--loss', 'dro'), found);
    assert.deepEqual(configDifferences(ours, dro), [
      'loss.name: stored "cispo", asked for "dro"',
      'loss.config.clip_low_threshold: stored 0, asked for none',
      'loss.config.clip_high_threshold: stored 4, asked for none',
      'loss.config.beta: stored none, asked for 0.01',
    ]);
  });

  it("the learner uses the backend's only model and requires a name when there are several", () => {
    const backendUrl = 'http://backend';
    assert.equal(chooseModel([{ name: 'a' }], { backendUrl }), 'a');
    assert.throws(
      () => chooseModel([{ name: 'a' }, { name: 'b' }], { backendUrl }),
      /serves a, b: choose the model with --model-name/,
    );
    assert.throws(
      () => chooseModel([{ name: 'a' }], { backendUrl, modelName: 'c' }),
      /does not serve --model-name c; it serves a/,
    );
  });
});
