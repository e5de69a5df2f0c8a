import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  backendMember,
  learnerMember,
  learnerName,
  runIdentities,
  usualConcurrency,
  workerMembers,
  type RunPlaces,
} from '../../../cli/processes/members.js';
import { UpConfig } from '../../../cli/up/up-config.js';

const places: RunPlaces = {
  run: 'r',
  runFolder: '/runs/r',
  checkpointFolder: '/runs/r/checkpoints',
  nats: { natsUrl: 'nats://user:hidden@127.0.0.1:1', keyFolder: '/runs/r/nats/keys' },
  backend: { url: 'http://127.0.0.1:2', apiKey: 'tml-secret' },
};

/** The actors of a run by name, each with the tickets that it takes. */
async function actorsOf(flags: Partial<UpConfig>): Promise<[string, string | undefined][]> {
  const members = workerMembers({ ...UpConfig.parse({}), ...flags }, places);
  const actors = members.filter(({ name }) => name.includes('actor'));
  return Promise.all(
    actors.map(async ({ name, command }) => {
      const { args } = await command();
      return [name, args.find((word) => word.startsWith('--splits='))];
    }),
  );
}

describe('the actors of a run', () => {
  it('the actors of a run accept every ticket', async () => {
    assert.deepEqual(await actorsOf({ actors: 2 }), [
      ['actor-0', '--splits=both'],
      ['actor-1', '--splits=both'],
    ]);
  });

  it('the actors of a run share the work if some are for evaluations', async () => {
    assert.deepEqual(await actorsOf({ actors: 1, evalActors: 1 }), [
      ['actor-0', '--splits=train'],
      ['eval-actor-0', '--splits=eval'],
    ]);
  });

  it('the actors of an evaluation have other names, since an actor unloads at an engine the adapters of those called as it is', () => {
    const crew = { actors: 1, evalActors: 0, actorsNamed: 'measure' };
    const members = workerMembers({ ...UpConfig.parse({}), ...crew }, places);
    assert.deepEqual(
      members.map(({ name }) => name),
      ['reward-service', 'measure-0'],
    );
    const names = runIdentities(crew).flatMap((identity) =>
      identity.role === 'actor' ? [identity.actor] : [],
    );
    assert.deepEqual(names, ['measure-0']);
  });

  it('actors are given the engines that they sample on', async () => {
    const engine = { sampler: 'vllm', engineUrl: 'http://127.0.0.1:8000', actors: 1 } as const;
    const members = workerMembers({ ...UpConfig.parse({}), ...engine }, places);
    const { args, env } = await members.find(({ name }) => name === 'actor-0')!.command();
    assert(args.includes('--sampler=vllm') && args.includes('--engine-url=http://127.0.0.1:8000'));
    assert.equal(env?.['ACTOR_API_KEY'], undefined);
  });

  it('each actor gets its own NATS key, and by the environment the address, which may hold a password', async () => {
    const members = workerMembers({ ...UpConfig.parse({}), actors: 2 }, places);
    const commands = await Promise.all(members.map(({ command }) => command()));
    assert.deepEqual(
      commands.map(
        ({ env }) =>
          env?.['ACTOR_NATS_NKEY_SEED_FILE'] ?? env?.['REWARD_SERVICE_NATS_NKEY_SEED_FILE'],
      ),
      ['reward', 'actor.actor-0', 'actor.actor-1'].map((name) => `/runs/r/nats/keys/${name}.nk`),
    );
    for (const { args } of commands) assert.doesNotMatch(args.join(' '), /hidden/);
  });

  it('the local backend of a run is told the alpha of its adapter if the run was', async () => {
    const flags = async (loraAlpha?: number) => {
      const { args } = await backendMember({ ...UpConfig.parse({}), loraAlpha }, places).command();
      return args.filter((word) => word.includes('alpha'));
    };
    assert.deepEqual(await flags(), []);
    assert.deepEqual(await flags(64), ['--lora-alpha=64']);
  });

  it('the backend and the actors of a model that does not ship give freed memory back', async () => {
    const limits = async (modelDir?: string) => {
      const config = { ...UpConfig.parse({}), modelDir };
      const members = [backendMember(config, places), workerMembers(config, places).at(-1)!];
      const commands = await Promise.all(members.map(({ command }) => command()));
      return commands.map(({ env }) => [
        env?.['MALLOC_MMAP_THRESHOLD_'],
        env?.['MALLOC_ARENA_MAX'],
      ]);
    };
    const [unset, set] = [
      [undefined, undefined],
      ['524288', '2'],
    ];
    assert.deepEqual(await limits(), [unset, unset]);
    assert.deepEqual(await limits('/models/large'), [set, set]);
  });

  it('the actors get --on-adoption, --in-flight-updates and --require-canary if these are given for the run', async () => {
    const adoption = async (flags: Partial<UpConfig>) => {
      const { args } = await workerMembers({ ...UpConfig.parse({}), ...flags }, places)
        .at(-1)!
        .command();
      return args.filter((word) => /adoption|in-flight|canary/.test(word));
    };
    assert.deepEqual(await adoption({}), []);
    assert.deepEqual(await adoption({ onAdoption: 'reprefill' }), ['--on-adoption=reprefill']);
    assert.deepEqual(await adoption({ inFlightUpdates: false }), ['--no-in-flight-updates']);
    assert.deepEqual(await adoption({ requireCanary: true }), ['--require-canary']);
    assert.deepEqual(await adoption({ requireCanary: false }), ['--no-require-canary']);
  });

  it('a run whose actors sample at the backend publishes no adapter before an actor asks, unless it was told otherwise', async () => {
    const publishing = async (flags: Partial<UpConfig>, settings: Record<string, unknown> = {}) => {
      const config = { ...UpConfig.parse({}), ...flags };
      const { args } = await learnerMember(config, places, settings).command();
      return args.filter((word) => word.startsWith('--publish-adapters'));
    };
    assert.deepEqual(await publishing({}), []);
    assert.deepEqual(await publishing({ sampler: 'tinker' }), ['--publish-adapters=asked']);
    const auto = { publishAdapters: 'auto' };
    assert.deepEqual(await publishing({ sampler: 'tinker' }, auto), ['--publish-adapters=auto']);
  });

  it('the actors of a run may fetch adapters from where its learner puts them, and from what the user names', async () => {
    const sources = async (settings: Record<string, unknown>, adapterSources?: string) => {
      const config = { ...UpConfig.parse({}), adapterSources };
      const { args } = await workerMembers(config, places, settings).at(-1)!.command();
      return args.filter((word) => word.startsWith('--adapter-sources'));
    };
    assert.deepEqual(await sources({}), []);
    assert.deepEqual(await sources({ adapterStore: 'nats' }), []);
    assert.deepEqual(await sources({ adapterStore: 'link' }), [
      '--adapter-sources=http://127.0.0.1:2',
    ]);
    assert.deepEqual(await sources({ adapterStore: '/mnt/a' }, 'https://store.example'), [
      '--adapter-sources=https://store.example,/mnt/a/r',
    ]);
  });

  it('actors get --concurrency and --segment-tokens if the run was started with them', async () => {
    const flags = async (config: Partial<UpConfig>) => {
      const { args } = await workerMembers({ ...UpConfig.parse({}), ...config }, places)
        .at(-1)!
        .command();
      return args.filter((word) => /concurrency|segment/.test(word));
    };
    assert.deepEqual(await flags({}), []);
    assert.deepEqual(await flags({ concurrency: 5 }), ['--concurrency=5']);
    assert.deepEqual(await flags({ segmentTokens: 64 }), ['--segment-tokens=64']);
  });

  it('all actors together sample by default as many groups as the capacity law allows tickets', () => {
    const each = (sampler: UpConfig['sampler'], actors: number, settings = {}) =>
      usualConcurrency({ sampler, actors }, settings);
    const small = { groupsPerBatch: 8, maxStepsOffPolicy: 2 };
    assert.equal(each('onnx', 2, small), 12);
    assert.equal(each('onnx', 5, small), 5);
    assert.equal(each('onnx', 2, { ...small, maxStepsOffPolicy: 0 }), 4);
    assert.equal(each('onnx', 2, { ...small, maxStepsOffPolicy: 'auto:2' }), 12);
    assert.deepEqual([each('onnx', 2), each('tinker', 1)], [16, 32]); // 192 tickets
    assert.equal(each('vllm', 1), undefined); // the actor finds out
  });

  it('the processes of a run with the embedded backend get fp32 as its arithmetic', async () => {
    const classes = async (flags: Partial<UpConfig>, settings = {}) => {
      const config = { ...UpConfig.parse({}), sampler: 'tinker' as const, ...flags };
      const members = [
        learnerMember(config, places, settings),
        workerMembers(config, places).at(-1)!,
      ];
      const commands = await Promise.all(members.map(({ command }) => command()));
      return commands.flatMap(({ args }) => args.filter((word) => word.includes('-class=')));
    };
    assert.deepEqual(await classes({}), ['--trainer-class=fp32', '--sampler-class=fp32']);
    assert.deepEqual(await classes({ backendUrl: 'http://127.0.0.1:3' }), []);
    const chosen = ['--trainer-class=bf16', '--sampler-class=fp32'];
    assert.deepEqual(await classes({}, { trainerClass: 'bf16' }), chosen);
  });

  it('the learner waits for the backend that is started beside it, as long as all processes may take', async () => {
    const patience = async (flags: Partial<UpConfig>) => {
      const config = { ...UpConfig.parse({}), readySeconds: 77, ...flags };
      const { args } = await learnerMember(config, places, {}).command();
      return args.filter((word) => word.startsWith('--start-patience'));
    };
    assert.deepEqual(await patience({}), ['--start-patience-seconds=77']);
    assert.deepEqual(await patience({ backendUrl: 'http://127.0.0.1:3' }), []);
  });

  it('a learner that is started again has what is left of the time limit, and one without a limit has none', async () => {
    const limits = async (settings: Record<string, unknown>, ...trained: number[]) => {
      const seconds = [...trained];
      const member = learnerMember(UpConfig.parse({}), places, settings, () => seconds.shift()!);
      const found: string[] = [];
      for (let start = 0; start < trained.length; start++) {
        const { args } = await member.command();
        found.push(...args.filter((word) => word.startsWith('--max-minutes')));
      }
      return found;
    };
    assert.deepEqual(await limits({ maxMinutes: 60 }, 0, 3_301, 3_700), [
      ...['--max-minutes=60', '--max-minutes=4.983', '--max-minutes=0.001'],
    ]);
    assert.deepEqual(await limits({}, 0, 100), []);
  });

  it('a stopped learner may take minutes to save, or as long as the run was started with, and is killed only later', async () => {
    const stopping = async (settings: Record<string, unknown>) => {
      const { command, stopGraceMs } = learnerMember(UpConfig.parse({}), places, settings);
      const { args } = await command();
      return [...args.filter((word) => word.startsWith('--stop-patience')), stopGraceMs];
    };
    assert.deepEqual(await stopping({}), ['--stop-patience-seconds=300', 330_000]);
    const chosen = ['--stop-patience-seconds=20', 50_000];
    assert.deepEqual(await stopping({ stopPatienceSeconds: 20 }), chosen);
  });

  it('the actors of a run get the backend key by the environment', async () => {
    const members = workerMembers({ ...UpConfig.parse({}), sampler: 'tinker' }, places);
    const { args, env } = await members.at(-1)!.command();
    assert.doesNotMatch(args.join(' '), /secret/);
    assert.equal(env?.['ACTOR_API_KEY'], 'tml-secret');
  });

  it('the actors of a run get a key that may only sample if the backend has one', async () => {
    const backend = { ...places.backend, samplingApiKey: 'tml-hidden-too' };
    const config = { ...UpConfig.parse({}), sampler: 'tinker' as const };
    const actor = await workerMembers(config, { ...places, backend })
      .at(-1)!
      .command();
    assert.equal(actor.env?.['ACTOR_API_KEY'], 'tml-hidden-too');
    assert(!Object.values(actor.env ?? {}).includes('tml-secret'));

    const server = await backendMember(config, { ...places, backend }).command();
    assert.equal(server.env?.['LOCAL_BACKEND_API_KEY'], 'tml-secret');
    assert.equal(server.env['LOCAL_BACKEND_SAMPLING_API_KEY'], 'tml-hidden-too');
    for (const { args } of [actor, server]) assert.doesNotMatch(args.join(' '), /secret|hidden/);
  });
});

describe('the name by which a learner holds the lead', () => {
  it('a learner keeps its name over restarts, and a run of that name elsewhere has another, so it must wait', () => {
    assert.equal(learnerName('runs/r'), learnerName(`${process.cwd()}/runs/r`));
    assert.notEqual(learnerName('/a/runs/r'), learnerName('/b/runs/r'));
    assert.match(learnerName('/a/runs/r'), /^learner-[0-9a-f]{8}$/);
  });
});
