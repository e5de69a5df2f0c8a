import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { z } from 'zod';
import { batching, OffPolicyBound, settingsOf } from '../../../shared/run/hyperparameters.js';
import { engineAddresses, int, listOf } from '../../../shared/service/config-fields.js';
import { loadConfig } from '../../../shared/service/config.js';
import { complaintOf } from '../../support/complaint.js';

const Schema = z.object({
  natsUrl: z.url().default('nats://127.0.0.1:4222'),
  maxSteps: z.coerce.number().int().positive(),
  learningRate: z.coerce.number().default(1e-3),
  verbose: z.boolean().default(false),
  apiKey: z.string().startsWith('tml-').optional(),
});

const load = (argv: string[], env: Record<string, string> = {}) =>
  loadConfig(Schema, 'learner', argv, env);

const complaint = (argv: string[], env: Record<string, string> = {}) =>
  complaintOf(() => load(argv, env));

describe('a configuration', () => {
  let folder: string;
  let file: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-config-'));
    file = join(folder, 'learner.json');
    await writeFile(file, JSON.stringify({ maxSteps: 3, learningRate: 0.3 }));
  });
  after(() => rm(folder, { recursive: true }));

  it('a configuration prefers a flag over the environment over the file over the default', () => {
    const { maxSteps, learningRate, natsUrl, verbose } = load(['--max-steps', '1'], {
      LEARNER_CONFIG: file,
      LEARNER_MAX_STEPS: '2',
      LEARNER_LEARNING_RATE: '0.2',
    });
    assert.deepEqual([maxSteps, learningRate], [1, 0.2]);
    assert.deepEqual([natsUrl, verbose], ['nats://127.0.0.1:4222', false]);
    assert.equal(load(['--config', file]).learningRate, 0.3);
  });

  it('a configuration accepts a value after a space or after =, also a negative one', () => {
    assert.equal(load(['--max-steps=7']).maxSteps, 7);
    assert.equal(load(['--max-steps', '7', '--learning-rate', '-1']).learningRate, -1);
  });

  it('a configuration accepts a switch without a value, and its opposite', () => {
    assert.equal(load(['--verbose', '--max-steps', '1']).verbose, true);
    const env = { LEARNER_VERBOSE: 'true' };
    assert.equal(load(['--max-steps', '1'], env).verbose, true);
    assert.equal(load(['--no-verbose', '--max-steps', '1'], env).verbose, false);
  });

  it('a configuration joins the values of a list whose flag is repeated', () => {
    const Lists = z.object({
      engineUrl: engineAddresses.optional().describe('servers.'),
      sizes: listOf(z.string())
        .transform((text) => text.split(',').map(Number))
        .pipe(z.array(z.int()))
        .default([9]),
    });
    const [a, b, c] = ['http://a:1', 'http://b:1', 'http://c:1'] as const;
    const read = (...argv: string[]) => loadConfig(Lists, 'actor', argv, { ACTOR_ENGINE_URL: c });
    assert.equal(read(`--engine-url=${a}`, '--engine-url', b).engineUrl, `${a},${b}`);
    assert.equal(read(`--engine-url=${a},${b}`, '--engine-url', c).engineUrl, `${a},${b},${c}`);
    assert.equal(read().engineUrl, c);
    assert.deepEqual(read('--sizes=1', '--sizes=2,3').sizes, [1, 2, 3]);
  });

  it('a configuration refuses two values for a flag that takes one, with both of them', () => {
    assert.equal(
      complaint(['--max-steps=7', '--max-steps', '8']),
      'learner cannot start:\n  - --max-steps is given twice, with "7" and "8"; it takes one value, so remove one of the two',
    );
    assert.match(
      complaint(['--max-steps=7', '--verbose', '--no-verbose']),
      /- --verbose is switched on and off; remove one of the two$/,
    );
    const keys = ['--api-key=tml-first', '--api-key=tml-second'];
    assert.match(
      complaint(['--max-steps=7', ...keys]),
      /--api-key is given twice, with two values;/,
    );
    assert.doesNotMatch(complaint(['--max-steps=7', ...keys]), /first|second/);
    assert.match(complaint(['--config=a.json', '--config=b.json']), /--config is given twice/);
  });

  it('a configuration accepts a flag that repeats the same value', () => {
    const { maxSteps, verbose } = load([
      '--max-steps=7',
      '--max-steps=7',
      '--verbose',
      '--verbose=true',
    ]);
    assert.deepEqual([maxSteps, verbose], [7, true]);
  });

  it('a configuration treats an empty variable as unset', () => {
    assert.equal(
      load(['--max-steps', '1'], { LEARNER_NATS_URL: '' }).natsUrl,
      load(['--max-steps', '1']).natsUrl,
    );
  });

  it('a configuration file may begin with a byte order mark', async () => {
    const path = join(folder, 'marked.json');
    await writeFile(path, `\ufeff${JSON.stringify({ maxSteps: 3 })}`);
    assert.equal(load(['--config', path]).maxSteps, 3);
  });

  it('a configuration reports all mistakes at once, under the names that the user knows', () => {
    const text = complaint([
      '--frob',
      '--nats-url',
      'nowhere',
      '--learning-rate',
      'fast',
      '--config',
      join(folder, 'none'),
    ]);
    assert.match(text, /^learner cannot start:/);
    assert.match(text, /--frob is not a flag; the flags are --nats-url, --max-steps/);
    assert.match(text, /--nats-url \(or LEARNER_NATS_URL\) is "nowhere": Invalid URL/);
    assert.match(text, /--learning-rate \(or LEARNER_LEARNING_RATE\) is "fast"/);
    assert.match(text, /--max-steps \(or LEARNER_MAX_STEPS\)/);
    assert.match(text, /--config .*none is not a readable JSON object/);
  });

  it('a configuration names the flag that a mistyped one resembles, and does not report its value as wrong', () => {
    const text = complaint(['--max-step', '4', '--verbos', '--max-steps', '1']);
    assert.match(text, /--max-step is not a flag; did you mean --max-steps\?/);
    assert.match(text, /--verbos is not a flag; did you mean --verbose\?/);
    assert.doesNotMatch(text, /4/);
    assert.match(complaint(['stray', '--max-steps', '1']), /^ {2}- stray is not a flag/m);
    for (const word of ['--maxSteps', '--max_steps', '-max-steps']) {
      assert.equal(
        complaint([word, '4', '--max-steps=1']),
        `learner cannot start:\n  - ${word} is not a flag; did you mean --max-steps?`,
      );
    }
    assert.match(
      complaint(['--maxSteps=4', '--verbose', 'true', '--max-steps=1']),
      /- --maxSteps is not a flag; did .*\n {2}- true is not a flag; --verbose takes no value$/,
    );
  });

  it('a configuration refers to the help if one of very many flags is mistyped, without listing all', () => {
    const flags = Array.from(
      { length: 13 },
      (_, i) => [`flag${i}`, z.string().optional()] as const,
    );
    assert.throws(
      () => loadConfig(z.object(Object.fromEntries(flags)), 'learner', ['--frob'], {}),
      /--frob is not a flag; --help lists the flags$/,
    );
  });

  it('a configuration reports a missing setting, with the expected value if it is declared', () => {
    const schema = z.object({ run: z.string(), to: z.url({ error: 'expected nats://host:port' }) });
    assert.throws(
      () => loadConfig(schema, 'learner', [], {}),
      (error: Error) =>
        error.message ===
        [
          'learner cannot start:',
          '  - --run (or LEARNER_RUN) is missing',
          '  - --to (or LEARNER_TO) is missing: expected nats://host:port',
        ].join('\n'),
    );
  });

  it('a configuration reports a flag without its value', () => {
    assert.match(complaint(['--max-steps', '--verbose']), /--max-steps needs a value/);
    assert.match(complaint(['--max-steps']), /--max-steps needs a value/);
  });

  it('a configuration does not read an empty value as the number 0, in a flag, a variable or the file', async () => {
    const Numbers = z.object({
      seed: int.min(0).default(1),
      evalProblems: int.min(0).optional(),
      bound: OffPolicyBound.default(2),
      ...settingsOf({ sampleLag: batching.sampleLag }),
      note: z.string().default(''),
    });
    const said = (argv: string[], env: Record<string, string> = {}) =>
      complaintOf(() => loadConfig(Numbers, 'offbeat-x', argv, env))
        .split('\n')
        .slice(1);
    const flags = ['--seed=', '--eval-problems', '', '--bound=', '--sample-lag= ', '--note='];
    assert.deepEqual(said(flags), [
      '  - --seed (or OFFBEAT_X_SEED) is "": expected a number; give a value, or leave it out',
      '  - --eval-problems (or OFFBEAT_X_EVAL_PROBLEMS) is "": expected a number; give a value, or leave it out',
      '  - --bound (or OFFBEAT_X_BOUND) is "": expected a whole number of at least 0, or auto:N with N of at least 1; give a value, or leave it out',
      '  - --sample-lag (or OFFBEAT_X_SAMPLE_LAG) is " ": expected a number; give a value, or leave it out',
    ]);
    assert.deepEqual(said([], { OFFBEAT_X_SEED: ' ' }), [
      '  - --seed (or OFFBEAT_X_SEED) is " ": expected a number; give a value, or leave it out',
    ]);

    const path = join(folder, 'empty.json');
    await writeFile(path, JSON.stringify({ seed: null, bound: [], evalProblems: false }));
    assert.deepEqual(said(['--config', path]), [
      `  - "seed" in ${path} is null: expected a number; give a value, or leave it out`,
      `  - "evalProblems" in ${path} is false: expected a number`,
      `  - "bound" in ${path} is []: expected a whole number of at least 0, or auto:N with N of at least 1`,
    ]);
    assert.deepEqual(said(['--config=']), ['  - --config needs a value']);
    const { seed, note } = loadConfig(Numbers, 'offbeat-x', ['--seed=0', '--note='], {});
    assert.deepEqual([seed, note], [0, '']);
  });

  it('a configuration reports a wrong value by the place that gives it', async () => {
    const path = join(folder, 'wrong.json');
    await writeFile(path, JSON.stringify({ maxSteps: 'x', learningRate: 'y' }));
    const text = complaint(['--config', path], { LEARNER_LEARNING_RATE: 'z' });
    assert.match(text, /^ {2}- "maxSteps" in .*wrong\.json is "x": expected a number$/m);
    assert.match(text, /^ {2}- --learning-rate \(or LEARNER_LEARNING_RATE\) is "z": expected/m);
  });

  it('a configuration reports unknown keys in the file', async () => {
    const path = join(folder, 'unknown.json');
    await writeFile(path, JSON.stringify({ maxSteps: 3, maxStep: 4 }));
    assert.match(complaint(['--config', path]), /unknown key "maxStep"; did you mean "maxSteps"\?/);
    await writeFile(path, JSON.stringify({ 'max-steps': 3 }));
    assert.match(complaint(['--config', path]), /"max-steps"; did you mean "maxSteps"\?/);
  });

  it('a configuration does not print secrets', () => {
    const text = complaint([
      '--max-steps',
      '1',
      '--api-key',
      'hidden1',
      '--nats-url',
      '//me:hidden2@h:x,//me:hidden/4@h:x,//me:hidden@3@h:x',
    ]);
    assert.match(text, /--api-key \(or LEARNER_API_KEY\) is set/);
    assert.doesNotMatch(text, /hidden/);
  });

  it('a configuration says in plain words what it expected', () => {
    const Plain = z.object({
      actors: z.coerce.number().int().min(1).max(9).default(2),
      rate: z.coerce.number().positive().default(1),
      loss: z.enum(['ppo', 'dro']).default('ppo'),
      out: z.string().min(1).default('out'),
      isQuick: z.boolean().default(false),
    });
    const said = (...argv: string[]) =>
      complaintOf(() => loadConfig(Plain, 'offbeat-x', argv, {})).replace(
        /^.*\n.*is "[^"]*": /,
        '',
      );
    assert.equal(said('--actors=many'), 'expected a number');
    assert.equal(said('--actors=1.5'), 'expected a whole number');
    assert.equal(said('--actors=0'), 'expected at least 1');
    assert.equal(said('--actors=10'), 'expected at most 9');
    assert.equal(said('--rate=0'), 'expected more than 0');
    assert.equal(said('--loss=mse'), 'expected one of ppo, dro');
    assert.equal(said('--out='), 'expected some text; give a value, or leave it out');
    assert.equal(said('--is-quick=maybe'), 'expected true or false');
    assert.match(
      complaintOf(() => loadConfig(Plain, 'offbeat-x', ['--a'], {})),
      /^offbeat x cannot/,
    );
  });
});
