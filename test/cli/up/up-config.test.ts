import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { upHelp } from '../../../cli/up/up.js';
import { sftCommand } from '../../../cli/up/sft.js';
import { loadUpConfig } from '../../../cli/up/load-up-config.js';
import { asFlags, readyMs, UpConfig, usualActorsOfRun } from '../../../cli/up/up-config.js';
import { LearnerConfig } from '../../../learner/config.js';
import { complaintOf } from '../../support/complaint.js';
import { runOffbeat } from '../../support/offbeat.js';

const load = (argv: string[], env: Record<string, string> = {}) =>
  loadUpConfig(LearnerConfig, argv, env);

/** What a new run with the shipped model gets besides what is given. */
const smallSteps = {
  ...{ groupsPerBatch: 16, numMinibatches: 1, evalEveryVersions: 80 },
  ...{ advantage: 'maxrl', maxrlUntil: 0.85 },
};

const complaint = (argv: string[], env: Record<string, string> = {}) =>
  complaintOf(() => load(argv, env));

describe('the flags of npm start', () => {
  it('the flags of npm start pass the given settings on to the learner and leave it its other defaults', () => {
    const { config, settings } = load(['--max-steps', '7', '--loss=ppo', '--actors', '3'], {
      OFFBEAT_LEARNING_RATE: '0.01',
    });
    assert.equal(config.actors, 3);
    assert.deepEqual(
      new Set(asFlags(settings)),
      new Set([
        ...['--max-steps=7', '--schedule=cosine', '--loss=ppo', '--learning-rate=0.01'],
        ...asFlags(smallSteps),
      ]),
    );
  });

  it('the flags of npm start make small steps of the shipped model, unless their size is given', () => {
    const choices = Object.keys(smallSteps);
    const stepsOf = (...argv: string[]) => {
      const chosen = Object.entries(load(argv).settings).filter(([key]) => choices.includes(key));
      return Object.fromEntries(chosen);
    };
    assert.deepEqual(stepsOf(), smallSteps);
    assert.deepEqual(stepsOf('--eval-every-versions=5'), { ...smallSteps, evalEveryVersions: 5 });
    assert.deepEqual(stepsOf('--groups-per-batch=64'), { groupsPerBatch: 64 });
    assert.deepEqual(stepsOf('--model-dir=models/other'), {});
    assert.deepEqual(stepsOf('--run=r', '--resume'), {});
    const { maxrlUntil: _until, ...toTheEnd } = smallSteps;
    assert.deepEqual(stepsOf('--advantage=maxrl'), toTheEnd);
    assert.deepEqual(stepsOf('--advantage=mean_std'), { ...toTheEnd, advantage: 'mean_std' });
    assert.deepEqual(stepsOf('--maxrl-until=0.5'), { ...toTheEnd, maxrlUntil: 0.5 });
    assert.match(complaint(['--num-minibatches=3']), /--groups-per-batch, which is 16/);
    const sft = loadUpConfig(LearnerConfig, [], {}, sftCommand).settings;
    assert.deepEqual(Object.keys(sft).sort(), ['data', 'epochs', 'schedule']);
  });

  it('the flags of npm start start one actor where few processors sample and train, unless told otherwise', () => {
    const counts = (given: Parameters<typeof usualActorsOfRun>[0]) =>
      [1, 2, 3, 4, 64].map((processors) => usualActorsOfRun(given, processors));
    assert.deepEqual(counts({ sampler: 'onnx' }), [1, 1, 1, 2, 2]);
    assert.deepEqual(counts({ backendUrl: 'http://gpu:8000' }), [2, 2, 2, 2, 2]);
    assert.deepEqual(counts({ sampler: 'tinker' }), [2, 2, 2, 2, 2]);
    assert.deepEqual(counts({ sampler: 'vllm' }), [1, 1, 1, 1, 1]);
    assert.equal(load([]).config.actors, usualActorsOfRun({}));
    const elsewhere = ['--backend-url=http://gpu:8000', '--api-key=k', '--model-dir=/m'];
    assert.equal(load(elsewhere).config.actors, 2);
    assert.equal(load(['--sampler=tinker']).config.actors, 2);
    assert.equal(load(['--actors=5']).config.actors, 5);
  });

  it('the flags of npm start give a time to become ready in whole milliseconds, which timers need', () => {
    const times = ['16.1', '60.0005', '86400'].map((seconds) =>
      readyMs(load([`--ready-seconds=${seconds}`]).config),
    );
    assert.deepEqual(times.map(Number.isInteger), [true, true, true]);
    assert.equal(times[2], 86_400_000);
    assert.match(complaint(['--ready-seconds=86401']), /--ready-seconds/);
  });

  it('the flags of npm start limit the time of a run without a limit', () => {
    const schedule = 'cosine'; // it needs an end, and has that one
    const rest = { ...smallSteps, schedule };
    assert.deepEqual(load([]).settings, { ...rest, maxMinutes: 5 });
    assert.deepEqual(load(['--max-minutes', '0.5']).settings, { ...rest, maxMinutes: 0.5 });
    assert.deepEqual(load(['--schedule', 'linear']).settings, {
      ...smallSteps,
      ...{ schedule: 'linear', maxMinutes: 5 },
    });
  });

  it('a variable of the learner sets what npm start would otherwise choose, but for its own flag or variable', () => {
    const env = {
      ...{ LEARNER_MAX_MINUTES: '60', LEARNER_SCHEDULE: 'constant' },
      ...{ LEARNER_NUM_MINIBATCHES: '2', LEARNER_MAXRL_UNTIL: '0.5' },
    };
    const rest = { ...smallSteps, maxMinutes: 60, numMinibatches: 2, maxrlUntil: 0.5 };
    assert.deepEqual(load([], env).settings, { ...rest, schedule: 'constant' });
    const { advantage, maxrlUntil } = load([], { LEARNER_ADVANTAGE: 'mean_std' }).settings;
    assert.deepEqual([advantage, maxrlUntil], ['mean_std', undefined]);
    assert.equal(load(['--max-minutes=1'], env).settings['maxMinutes'], 1);
    assert.equal(load([], { ...env, OFFBEAT_MAX_MINUTES: '2' }).settings['maxMinutes'], 2);
    assert.deepEqual(load(['--run=r', '--resume'], env).settings, {});
    // The launcher tells actors where adapters are, and starts none for evaluations that there are not.
    const places = { LEARNER_ADAPTER_STORE: '/mnt/a', LEARNER_EVAL_PROBLEMS: '0' };
    const { adapterStore, evalProblems } = load([], places).settings;
    assert.deepEqual([adapterStore, evalProblems], ['/mnt/a', 0]);
    assert.match(complaint([], { LEARNER_MAX_MINUTES: 'soon' }), /LEARNER_MAX_MINUTES is "soon"/);
  });

  it('the flags of npm start are refused if they are for servers of the user that there are none of', () => {
    assert.match(complaint(['--stream-replicas=3']), /--stream-replicas .* add --nats-url/);
    load(['--stream-replicas=3', '--nats-url=nats://h:1']);
    assert.match(complaint(['--checkpoint-dir=/mnt']), /--checkpoint-dir .* --backend-url/);
    const backend = ['--backend-url=http://x', '--api-key=tml-k', '--model-dir=m'];
    assert.match(
      complaint([...backend, '--sampling-api-key=tml-s']),
      /--sampling-api-key .* only actors with --sampler tinker use it/,
    );
  });

  it('the flags of npm start let actors find out how many groups they sample at once', () => {
    assert.equal(load(['--concurrency=auto']).config.concurrency, 'auto');
    assert.match(complaint(['--concurrency=soon']), /expected auto, or a number from 1 to 1024/);
  });

  it('the flags of npm start leave addresses and folders to the launcher', () => {
    assert.match(complaint(['--run-dir', 'x']), /--run-dir is not a flag/);
    assert.match(complaint(['--health-port', '1']), /--health-port is not a flag/);
  });

  it('a flag that only a service has is refused with the variable that sets it', async () => {
    const refusal = async (...words: string[]) => {
      const { code, err } = await runOffbeat(words, '.');
      assert.equal(code, 2);
      return err;
    };
    assert.match(
      await refusal('up', '--engine-max-loras', '4', '--threads=1', '--xyzzy', '1'),
      new RegExp(
        '--engine-max-loras is not a flag; it is a flag of offbeat actor: set ACTOR_ENGINE_MAX_LORAS in the environment\\n' +
          '  - --threads is not a flag; it is a flag of offbeat actor and offbeat local-backend: set ACTOR_THREADS and LOCAL_BACKEND_THREADS in the environment\\n' +
          '  - --xyzzy is not a flag; --help lists the flags',
      ),
    );
    // Several actors would have the same port, and what sft leaves out means nothing there.
    assert.match(await refusal('up', '--health-port', '1'), /--health-port is not a flag; (?!it)/);
    assert.match(
      await refusal('sft', '--on-adoption', 'keep'),
      /--on-adoption is not a flag; (?!it)/,
    );
  });

  it('the flags of npm start are refused with all mistakes at once', () => {
    const text = complaint([
      '--frob',
      '--actors',
      '0',
      '--learning-rate',
      '-1',
      '--backend-url',
      'ftp://x',
      '--run',
      'a b',
      '--nats-url',
      'http://h:1',
    ]);
    assert.match(text, /^offbeat cannot start:/);
    for (const flag of [
      '--frob',
      '--actors',
      '--learning-rate',
      '--backend-url',
      '--run',
      '--nats-url',
    ]) {
      assert.match(text, new RegExp(`- ${flag} `));
    }
    assert.match(text, /--nats-url .* is "http:\/\/h:1": expected nats:\/\/host:port/);
  });

  it("the flags of npm start are refused if they contradict one another or the learner's settings", () => {
    const text = complaint([
      '--groups-per-batch',
      '7',
      '--num-minibatches',
      '2',
      '--api-key',
      'tml-secret',
    ]);
    assert.match(
      text,
      /--num-minibatches \(or OFFBEAT_NUM_MINIBATCHES\) is "2": it must divide --groups-per-batch, which is 7/,
    );
    assert.match(text, /--api-key .* is set: add --backend-url/);
    assert.doesNotMatch(text, /secret/);
  });

  it('the flags of npm start are refused if the bound holds for tokens and answers adopt no versions', () => {
    const tokens = ['--window-policy', 'tokens'];
    load(tokens);
    assert.match(
      complaint([...tokens, '--no-in-flight-updates']),
      /--window-policy tokens needs answers that adopt .*; remove --no-in-flight-updates/,
    );
    assert.match(
      complaint([...tokens, '--sampler', 'tinker']),
      /--segment-tokens .*; with --sampler tinker give one, such as 256/,
    );
    load([...tokens, '--sampler', 'tinker', '--segment-tokens', '64']);
  });

  it('the flags of npm start are refused if one makes another do nothing', () => {
    const page = complaint(['--no-dashboard', '--dashboard-port=8080']);
    assert.match(page, /--dashboard-port .* is "8080": --no-dashboard serves no page/);
    const evals = complaint(['--eval-problems=0', '--eval-actors=2']);
    assert.match(evals, /--eval-actors .* is "2": --eval-problems 0 gives them nothing/);
    load(['--eval-problems=0', '--eval-actors=0', '--dashboard-port=8080']);
    const never = complaint(['--eval-problems=0', '--eval-every-versions=5']);
    assert.match(never, /--eval-every-versions .* is "5": --eval-problems 0 leaves no problem/);
    load(['--eval-problems=0', '--eval-every-versions=0']);
    for (const shaping of ['none', 'random']) {
      const form = complaint([`--shaping=${shaping}`, '--format-score=0.2']);
      assert.match(form, /--format-score .* is "0\.2": --shaping \w+ does not reward the form/);
    }
    load(['--shaping=continuous', '--format-score=0.2']);
    const tickets = complaint(['--data=solver', '--tickets-ahead=4']);
    assert.match(tickets, /--tickets-ahead .* is "4": --data trains on examples/);
    const words = complaint(['--prompt-style=own.json', '--prompt-language=zh']);
    assert.match(words, /--prompt-language .* is "zh": the file of --prompt-style/);
    load(['--prompt-style=own.json', '--prompt-language=en']);
    load(['--prompt-style=think', '--prompt-language=zh', '--max-tokens=256']);
    const late = complaint(['--max-steps=30', '--warmup-steps=31']);
    assert.match(
      late,
      /--warmup-steps .* never reach its peak within --max-steps 30; choose fewer/,
    );
    load(['--max-steps=30', '--warmup-steps=30']);
    const streak = complaint(['--zero-variance=train', '--stop-zero-variance=50']);
    assert.match(streak, /--stop-zero-variance .* is "50": --zero-variance train skips no group/);
    load(['--zero-variance=train', '--stop-zero-variance=0']);
    load(['--zero-variance=train']);
  });

  it('the flags of npm start ask for the facts about a server that only the user knows', () => {
    const text = complaint(['--backend-url', 'http://127.0.0.1:10610']);
    assert.match(text, /--api-key .*TINKER_API_KEY/);
    assert.match(text, /--model-dir .*the directory of the model/);

    const server = ['--backend-url', 'http://127.0.0.1:10610', '--model-dir', 'm'];
    assert.equal(load(server, { TINKER_API_KEY: 'tml-a' }).config.apiKey, 'tml-a');
    const both = load([...server, '--api-key', 'tml-b'], { TINKER_API_KEY: 'tml-a' });
    assert.equal(both.config.apiKey, 'tml-b');
    assert.equal(load([], { TINKER_API_KEY: 'tml-a' }).config.apiKey, undefined); // the local one has its own
  });
});

describe('the flags of offbeat sft', () => {
  it('the flags of offbeat sft are those of npm start that mean something without rollouts', () => {
    const examples = (argv: string[]) => loadUpConfig(LearnerConfig, argv, {}, sftCommand);
    const { settings } = examples(['--max-steps=7', '--stop-patience-seconds=60']);
    assert.deepEqual([settings['maxSteps'], settings['stopPatienceSeconds']], [7, 60]);
    assert.match(
      complaintOf(() => examples(['--advantage=maxrl'])),
      /--advantage/,
    );
  });
});

describe('the help of npm start', () => {
  it('the help of npm start explains each documented flag', async () => {
    const help = await upHelp();
    const promised =
      'max-steps max-minutes actors max-steps-off-policy groups-per-batch group-size num-minibatches learning-rate lora-rank loss seed run backend-url nats-url json';
    for (const flag of promised.split(' ')) {
      assert.match(
        help.replace(/\n {6}/g, ' '), // an entry has as many lines as it needs
        new RegExp(`\n  --${flag} [^(\n]{10,}.*\\(.*env OFFBEAT_`),
        flag,
      );
    }
  });

  it('the help of npm start gives the defaults', async () => {
    const { actors } = UpConfig.parse({});
    assert.match(await upHelp(), new RegExp(`--actors N\\n.*\\n? *.*default ${actors};`));
  });
});
