import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { extract } from 'tar-stream';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { decodeAdapter } from '../../shared/model/lora.js';
import { encodeForwardBackwardRequest } from '../../shared/tinker/codec.js';
import {
  createModelBody,
  forwardBackward,
  imitation,
  startOn,
  tinyModel,
  Wire,
  type Json,
} from '../local-backend/running-backend.js';

describe('the local backend over HTTP', () => {
  let directory: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;
  let wire: Wire;
  let session: string;
  let models = 0;

  before(async () => {
    directory = await tinyModel();
    backend = await startOn(directory.path, { pollMs: 200 });
    wire = new Wire(backend.url);
    session = await wire.createSession();
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });
  const freshModel = () => wire.createModel(session, models++);

  it('the local backend executes a whole training step', async () => {
    const config = await wire.post('client/config', { sdk_version: '0.25.0' });
    assert.equal(config['pjwt_auth_enabled'], false);
    await wire.post('client/dynamic_config', { sdk_version: '0.25.0' });
    await wire.post('session_heartbeat', { session_id: session });

    const model = await freshModel();
    const info = await wire.post('get_info', { model_id: model });
    assert.equal(info['lora_rank'], 4);

    const losses: number[] = [];
    for (let seq = 1; seq <= 7; seq += 2) {
      const trained = await wire.sendForwardBackward(forwardBackward(model, seq));
      const stepped = await wire.optimStep(model, seq + 1);
      const { logprobs, metrics } = await wire.evaluation(trained);
      assert.deepEqual(
        logprobs.map(({ length }) => length),
        [4, 2],
      );
      const sum = logprobs.flatMap((values) => [...values]).reduce((a, b) => a + b, 0);
      assert(Math.abs(metrics['loss:sum']! + sum) < 1e-4);
      losses.push(metrics['loss:sum']!);
      const { metrics: stepMetrics } = await wire.result(stepped);
      assert((stepMetrics as Record<string, number>)['grad_norm:mean']! > 0);
    }
    assert(losses.at(-1)! < losses[0]!, `the loss did not fall: ${losses.join(', ')}`);

    const saved = await wire.result(
      await wire.post('save_weights_for_sampler', { model_id: model, path: 'v4', seq_id: 9 }),
    );
    assert.equal(saved['path'], `tinker://${model}/sampler_weights/v4`);
    const { sampling_session_id: sampler } = await wire.post('create_sampling_session', {
      session_id: session,
      sampling_session_seq_id: 0,
      model_path: saved['path'],
    });
    const promise = await wire.post('asample', {
      ...sampleBody(String(sampler)),
      prompt_logprobs: true,
    });
    assert.equal((promise['sample_sequence_ids'] as string[]).length, 3);
    const { sequences, promptLogprobs } = await wire.samples(promise);
    assert.equal(sequences.length, 3);
    for (const { tokens, logprobs, stopReason } of sequences) {
      assert.equal(tokens.length, logprobs.length);
      assert(tokens.length === 8 || stopReason === 'stop');
    }
    assert.equal(promptLogprobs!.length, 3);
    assert(Number.isNaN(promptLogprobs![0]));

    // The sampler's logprobs equal those that training computes for the same tokens.
    const text = [3, 4, 5, ...sequences[0]!.tokens];
    const forward = await wire.sendForwardBackward(
      forwardBackward(model, 10, { data: [imitation(text)], isForwardOnly: true }),
    );
    const scored = (await wire.evaluation(forward)).logprobs[0]!;
    const sampled = [...promptLogprobs!.slice(1), ...sequences[0]!.logprobs];
    sampled.forEach((logprob, i) => {
      assert(Math.abs(logprob - scored[i]!) < 1e-4, `token ${i}: ${logprob} and ${scored[i]!}`);
    });
  });

  it('a request that arrives twice is executed once', async () => {
    const model = await freshModel();
    const request = forwardBackward(model, 1);
    const [first, copy] = [
      await wire.sendForwardBackward(request),
      await wire.sendForwardBackward(request),
    ];
    assert.equal(copy['request_id'], first['request_id']);
    const step = await wire.optimStep(model, 2);
    await wire.result(step);
    assert.equal((await wire.optimStep(model, 2))['request_id'], step['request_id']);
    const { metrics } = await wire.result(await wire.optimStep(model, 2));
    assert.equal((metrics as Record<string, number>)['step:max'], 1);
  });

  it('a create_model that arrives twice makes one model', async () => {
    const body = createModelBody(session, models++);
    const first = await wire.post('create_model', body);
    assert.deepEqual(await wire.post('create_model', body), first);
  });

  it('a different operation under a used id is refused, naming the next id', async () => {
    const model = await freshModel();
    await wire.result(await wire.optimStep(model, 1));
    const failed = await wire.result(await wire.optimStep(model, 1, 0.5));
    assert.match(String(failed['error']), /^Sequence conflict: expected 2, got 1\./);
    const probe = await wire.result(await wire.optimStep(model, 0));
    assert.match(String(probe['error']), /^Sequence conflict: expected 2, got 0\./);
  });

  it('operations that arrive out of order run in the order of their ids', async () => {
    const [straight, crossed] = [await freshModel(), await freshModel()];
    await wire.sendForwardBackward(forwardBackward(straight, 1));
    await wire.optimStep(straight, 2);
    const expected = await wire.sendForwardBackward(forwardBackward(straight, 3));

    const last = await wire.sendForwardBackward(forwardBackward(crossed, 3));
    await wire.optimStep(crossed, 2);
    await wire.sendForwardBackward(forwardBackward(crossed, 1));
    assert.deepEqual(await wire.evaluation(last), await wire.evaluation(expected));
  });

  it('the local backend continues after an operation that its client never sent', async () => {
    await using other = await tinyModel();
    await using impatient = await startOn(other.path, { gapWaitMs: 50 });
    const there = new Wire(impatient.url);
    const model = await there.createModel(await there.createSession());
    // The Python SDK counts an operation before it finds that it cannot send it, for example because of a NaN.
    await there.evaluation(await there.sendForwardBackward(forwardBackward(model, 2)));
    assert.equal((await there.result(await there.optimStep(model, 3)))['type'], 'optim_step');
    const late = await there.result(await there.optimStep(model, 1));
    assert.match(String(late['error']), /^Sequence conflict: expected 4, got 1/);
  });

  it('an operation that cannot be executed uses up its id', async () => {
    const model = await freshModel();
    const foreign = forwardBackward(model, 1, { data: [imitation([3, 900_000, 4])] });
    const failed = await wire.result(await wire.sendForwardBackward(foreign));
    assert.equal(failed['category'], 'user');
    assert.match(String(failed['error']), /token 900000/);
    const lacking = { ...imitation([3, 4, 5]), inputs: {} };
    const second = forwardBackward(model, 2, { data: [lacking] });
    assert.match(
      String((await wire.result(await wire.sendForwardBackward(second)))['error']),
      /weights/,
    );
    await wire.evaluation(await wire.sendForwardBackward(forwardBackward(model, 3)));
  });

  it('training continues from a saved state bit for bit', async () => {
    const model = await freshModel();
    await wire.sendForwardBackward(forwardBackward(model, 1));
    await wire.optimStep(model, 2);
    const saved = await wire.result(
      await wire.post('save_weights', { model_id: model, path: 'state', seq_id: 3 }),
    );
    const continueFrom = async (id: string, seq: number) => {
      await wire.sendForwardBackward(forwardBackward(id, seq));
      await wire.optimStep(id, seq + 1);
      return wire.evaluation(await wire.sendForwardBackward(forwardBackward(id, seq + 2)));
    };
    const expected = await continueFrom(model, 4);

    const load = (id: string, seq: number, optimizer: boolean) =>
      wire
        .post('load_weights', { model_id: id, path: saved['path'], optimizer, seq_id: seq })
        .then((promise) => wire.result(promise));
    const other = await freshModel();
    assert.equal((await load(other, 1, true))['path'], saved['path']);
    assert.deepEqual(await continueFrom(other, 2), expected);
    await load(model, 7, true);
    assert.deepEqual(await continueFrom(model, 8), expected);

    const withoutOptimizer = await freshModel();
    await load(withoutOptimizer, 1, false);
    assert.notDeepEqual(await continueFrom(withoutOptimizer, 2), expected);
  });

  it('one request creates a model from a saved state under the id that its client derives', async () => {
    const model = await freshModel();
    await wire.sendForwardBackward(forwardBackward(model, 1));
    await wire.optimStep(model, 2);
    const saved = await wire.result(
      await wire.post('save_weights', { model_id: model, path: 'one', seq_id: 3 }),
    );
    const number = models++;
    const body = {
      session_id: session,
      model_seq_id: number,
      path: saved['path'],
      optimizer: true,
      type: 'load_weights',
    };
    const promise = await wire.post('load_weights', body);
    assert.deepEqual(await wire.post('load_weights', body), promise, 'a copy is the same request');
    const loaded = await wire.result(promise);
    assert.equal(loaded['path'], saved['path']);

    const derived = `${session}:train:${number}`;
    const about = await wire.post('get_info', { model_id: derived });
    assert.equal(about['lora_rank'], 4);
    const goOn = async (id: string, seq: number) => {
      await wire.sendForwardBackward(forwardBackward(id, seq));
      await wire.optimStep(id, seq + 1);
      return wire.evaluation(await wire.sendForwardBackward(forwardBackward(id, seq + 2)));
    };
    assert.deepEqual(await goOn(derived, 1), await goOn(model, 4));
    await wire.result(await wire.post('save_weights', { model_id: derived, path: 'b', seq_id: 4 }));
    const { checkpoints } = await wire.get(`training_runs/${derived}/checkpoints`);
    assert.equal((checkpoints as unknown[]).length, 1);
    const missing = await wire.tryPost('load_weights', { path: saved['path'], optimizer: true });
    assert.equal(missing.status, 400);
    assert.match(await missing.text(), /session_id and model_seq_id/);
  });

  it('the local backend refuses to load a state that has another geometry or does not exist', async () => {
    const model = await freshModel();
    const path = `tinker://${model}/weights/small`;
    await wire.result(
      await wire.post('save_weights', { model_id: model, path: 'small', seq_id: 1 }),
    );
    const larger = await wire.createModel(session, models++, 8);
    const load = async (seq: number, from: string) =>
      wire.result(
        await wire.post('load_weights', {
          model_id: larger,
          path: from,
          optimizer: true,
          seq_id: seq,
        }),
      );
    assert.match(String((await load(1, path))['error']), /lora_rank is 4 .* and 8 here/);
    assert.match(String((await load(2, `${path}-other`))['error']), /not found/);
    assert.match(String((await load(3, 'tinker://../weights/x'))['error']), /tinker path/);
  });

  it('the local backend answers health checks while it trains', async () => {
    const model = await freshModel();
    const long = imitation(Array.from({ length: 60 }, (_, i) => 3 + (i % 19)));
    const data = new Array<typeof long>(800).fill(long);
    const promise = await wire.sendForwardBackward(forwardBackward(model, 1, { data }));
    const order: string[] = [];
    await Promise.all([
      wire.evaluation(promise).then(() => order.push('trained')),
      wire.get('healthz').then(() => order.push('healthy')),
    ]);
    assert.deepEqual(order, ['healthy', 'trained']);
  });

  it('without a seed the samples of two requests differ, also those of two clients that ask the same', async () => {
    const ask = async (session_id: string, seq_id: number) => {
      const { sampling_session_id } = await wire.post('create_sampling_session', {
        ...{ session_id, sampling_session_seq_id: 30 + seq_id, base_model: 'test/tiny' },
      });
      const body = { ...sampleBody(String(sampling_session_id)), seq_id };
      const { sequences } = await wire.samples(await wire.post('asample', body));
      return sequences.map(({ tokens }) => [...tokens].join()).join('\n');
    };
    const other = await wire.createSession();
    const drawn = [await ask(session, 0), await ask(session, 1), await ask(other, 0)];
    assert.equal(new Set(drawn).size, 3);
  });

  it('sampling is reproducible for the same seed and ends at stops', async () => {
    const { sampling_session_id: sampler } = await wire.post('create_sampling_session', {
      session_id: session,
      sampling_session_seq_id: 10,
      base_model: 'test/tiny',
    });
    const sample = async (seq_id: number, params: Record<string, unknown>) => {
      const body = sampleBody(String(sampler), params);
      return (await wire.samples(await wire.post('asample', { ...body, seq_id }))).sequences;
    };
    const first = await sample(0, { seed: 5 });
    assert.deepEqual(await sample(1, { seed: 5 }), first);
    assert.notDeepEqual(await sample(2, { seed: 6 }), first);

    const [stopToken] = first[0]!.tokens;
    const [stopped] = await sample(6, { seed: 5, stop: [stopToken] });
    assert.deepEqual([...stopped!.tokens], [stopToken]);
    assert.equal(stopped!.stopReason, 'stop');

    const scored = await wire.samples(
      await wire.post('asample', {
        ...sampleBody(String(sampler), {}),
        prompt: { chunks: [{ type: 'encoded_text', tokens: new Array<number>(64).fill(3) }] },
        prompt_logprobs: true,
      }),
    );
    assert.equal(scored.promptLogprobs!.filter((logprob) => logprob < 0).length, 63);
    assert.deepEqual(
      scored.sequences.map(({ tokens }) => tokens.length),
      [0, 0, 0],
    );

    const greedy = await sample(7, { temperature: 0 });
    assert.deepEqual(greedy[0]!.tokens, greedy[1]!.tokens);
    const refused = await wire.tryPost('asample', sampleBody(String(sampler), { top_k: 3 }));
    assert.equal(refused.status, 400);
    assert.match(await refused.text(), /top_k/);
  });

  it('samples do not depend on concurrent requests', async () => {
    const { sampling_session_id: sampler } = await wire.post('create_sampling_session', {
      session_id: session,
      sampling_session_seq_id: 12,
      base_model: 'test/tiny',
    });
    const ask = (seed: number, seq_id: number) => {
      const tokens = Array.from({ length: 2 + (seed % 5) }, (_, i) => 3 + ((seed + i) % 10));
      const prompt = { chunks: [{ type: 'encoded_text', tokens }] };
      const params = { seed, temperature: seed % 2 === 0 ? 1 : 0.7 };
      return wire.post('asample', { ...sampleBody(String(sampler), params), prompt, seq_id });
    };
    const seeds = Array.from({ length: 24 }, (_, seed) => seed);
    const together = await Promise.all(
      seeds.map(async (seed) => (await wire.samples(await ask(seed, seed))).sequences),
    );
    for (const seed of seeds.slice(0, 6)) {
      const { sequences } = await wire.samples(await ask(seed, 100 + seed));
      sequences.forEach(({ tokens, logprobs, stopReason }, i) => {
        const beside = together[seed]![i]!;
        assert.deepEqual([tokens, stopReason], [beside.tokens, beside.stopReason]);
        logprobs.forEach((logprob, t) => {
          assert(Math.abs(logprob - beside.logprobs[t]!) < 1e-5);
        });
      });
    }
  });

  it('an unnamed save for the sampler becomes a sampling session', async () => {
    const model = await freshModel();
    const saved = await wire.result(
      await wire.post('save_weights_for_sampler', {
        model_id: model,
        sampling_session_seq_id: 11,
        seq_id: 1,
      }),
    );
    assert.equal(saved['path'], null);
    const sampler = String(saved['sampling_session_id']);
    const { sequences } = await wire.samples(await wire.post('asample', sampleBody(sampler)));
    assert.equal(sequences.length, 3);
    const about = await wire.get(`samplers/${sampler}`);
    assert.equal(about['model_path'], `tinker://${model}/sampler_weights/checkpoint-0001`);
    const { sampler_ids } = await wire.get(`sessions/${session}`);
    assert((sampler_ids as string[]).includes(sampler), 'its session does not list it');
  });

  it('the local backend lists, describes, serves and deletes checkpoints', async () => {
    const model = await freshModel();
    await wire.result(await wire.post('save_weights', { model_id: model, path: 'a', seq_id: 1 }));
    await wire.result(
      await wire.post('save_weights_for_sampler', { model_id: model, path: 'a', seq_id: 2 }),
    );
    const list = async () => {
      const { checkpoints } = await wire.get(`training_runs/${model}/checkpoints`);
      return (checkpoints as { checkpoint_id: string }[]).map((one) => one.checkpoint_id).sort();
    };
    assert.deepEqual(await list(), ['sampler_weights/a', 'weights/a']);
    const about = await wire.post('weights_info', { tinker_path: `tinker://${model}/weights/a` });
    assert.equal(about['lora_rank'], 4);

    const archive = `training_runs/${model}/checkpoints/sampler_weights/a/archive`;
    const redirect = await wire.fetch(`/api/v1/${archive}`);
    assert.equal(redirect.status, 302);
    const tar = await fetch(redirect.headers.get('location')!); // without a key
    const files = await untar(new Uint8Array(await tar.arrayBuffer()));
    const config = JSON.parse(files['adapter_config.json']!.toString()) as Record<string, unknown>;
    assert.equal(config['r'], 4);
    assert.equal(config['lora_alpha'], 8);
    const adapter = decodeAdapter(files['adapter_model.safetensors']!, { rank: 4, alpha: 8 });
    assert.equal(adapter.tensors.size, 2 * 7 * 2);

    const url = `/api/v1/training_runs/${model}/checkpoints/weights/a`;
    assert.equal((await wire.fetch(url, { method: 'DELETE' })).status, 204);
    assert.deepEqual(await list(), ['sampler_weights/a']);
    assert.equal((await wire.fetch(url, { method: 'DELETE' })).status, 404);
  });

  it('a new adapter has the alpha of the server, also when it is made from saved weights', async () => {
    const place = await tinyModel();
    await using _place = place;
    await using server = await startOn(place.path, { pollMs: 200, loraAlpha: 3 });
    const other = new Wire(server.url);
    const theirs = await other.createSession();
    const alphaOf = async (model: string, seq_id: number) => {
      const path = 'saved';
      const request = { model_id: model, path, seq_id };
      await other.result(await other.post('save_weights_for_sampler', request));
      const archive = `training_runs/${model}/checkpoints/sampler_weights/${path}/archive`;
      const { headers } = await other.fetch(`/api/v1/${archive}`);
      const tar = await (await fetch(headers.get('location')!)).arrayBuffer();
      const files = await untar(new Uint8Array(tar));
      return (JSON.parse(files['adapter_config.json']!.toString()) as Json)['lora_alpha'];
    };
    const model = await other.createModel(theirs, 0);
    assert.equal(await alphaOf(model, 1), 3);
    const state = { model_id: model, path: 'state', seq_id: 2 };
    const { path } = await other.result(await other.post('save_weights', state));
    const from = { session_id: theirs, model_seq_id: 1, path, optimizer: true };
    const loaded = await other.post('load_weights', from);
    await other.result(loaded);
    assert.equal(await alphaOf(String(loaded['model_id']), 1), 3);
  });

  it('the notes of a session, a run and a checkpoint are read back as text', async () => {
    const { session_id: noted } = await wire.post('create_session', {
      tags: ['nightly'],
      user_metadata: { note: 'first', seed: 3 },
      display_name: 'Countdown',
      sdk_version: '0.38.0',
    });
    const about = await wire.get(`sessions/${String(noted)}`);
    assert.deepEqual(about['user_metadata'], { note: 'first', seed: '3' });
    assert.equal(about['display_name'], 'Countdown');

    const promise = await wire.post('create_model', {
      ...createModelBody(String(noted)),
      user_metadata: { lr: 0.001, tags: ['a'] },
    });
    const model = String((await wire.result(promise))['model_id']);
    const save = (seq_id: number, user_metadata?: Json) =>
      wire.post('save_weights', { model_id: model, path: 'noted', seq_id, user_metadata });
    const notes = async () => {
      const { user_metadata: ofRun, last_checkpoint } = await wire.get(`training_runs/${model}`);
      return [ofRun, (last_checkpoint as Json)['user_metadata']];
    };
    await wire.result(await save(1, { score: '0.7' }));
    assert.deepEqual(await notes(), [{ lr: '0.001', tags: '["a"]' }, { score: '0.7' }]);
    await wire.result(await save(2)); // overwriting without notes removes them
    assert.deepEqual((await notes())[1], null);
  });

  it('the local backend says that it does not train the output head', async () => {
    const body = { tags: [], user_metadata: {}, sdk_version: '0.38.0' };
    const { session_id, info_message } = await wire.post('create_session', body);
    assert.equal(info_message, 'train_unembed has no effect here: the output head is not adapted');
    const create = (model_seq_id: number, flags: Json) => {
      const usual = createModelBody(String(session_id), model_seq_id);
      return { ...usual, lora_config: { ...(usual['lora_config'] as Json), ...flags } };
    };
    const promise = await wire.post('create_model', create(0, { train_unembed: true }));
    const model = String((await wire.result(promise))['model_id']);
    await wire.result(await wire.post('save_weights', { model_id: model, path: 'a', seq_id: 1 }));
    const about = await wire.post('weights_info', { tinker_path: `tinker://${model}/weights/a` });
    const { train_attn, train_mlp, train_unembed } = about;
    assert.deepEqual([train_attn, train_mlp, train_unembed], [true, true, false]);

    const headOnly = create(1, { train_unembed: true, train_attn: false, train_mlp: false });
    const refused = await wire.tryPost('create_model', headOnly);
    assert.equal(refused.status, 400);
    assert.match(await refused.text(), /needs train_attn or train_mlp/);
  });

  it('each copy of a sampling client gets a number of its own', async () => {
    const config = await wire.post('client/config', { sdk_version: '0.38.0' });
    assert.equal(config['sample_join_sampling_session'], true);
    const open = async () => {
      const opening = { session_id: session, base_model: 'test/tiny' };
      return (await wire.post('create_sampling_session', opening))['sampling_session_id'];
    };
    const join = async (sampling_session_id: unknown) =>
      (await wire.post('join_sampling_session', { sampling_session_id }))['client_counter'];
    const [first, second] = [await open(), await open()];
    assert.deepEqual([await join(first), await join(first), await join(second)], [1, 2, 1]);
    const refused = await wire.tryPost('join_sampling_session', { sampling_session_id: 'none' });
    assert.equal(refused.status, 404);
  });

  it('only the last tokens of a prompt are scored if a request says so', async () => {
    const { sampling_session_id: sampler } = await wire.post('create_sampling_session', {
      session_id: session,
      base_model: 'test/tiny',
    });
    const body = { ...sampleBody(String(sampler)), prompt_logprobs: true };
    const scores = async (more: Json) => {
      const { promptLogprobs } = await wire.samples(
        await wire.post('asample', { ...body, ...more }),
      );
      return [...promptLogprobs!];
    };
    const [, , last] = await scores({});
    assert.deepEqual(await scores({ prompt_logprobs_last_n: 1 }), [NaN, NaN, last]);
    for (const more of [
      { prompt_logprobs_last_n: 3 },
      { prompt_logprobs_last_n: 1, prompt_logprobs: false },
    ]) {
      const refused = await wire.tryPost('asample', { ...body, ...more });
      assert.equal(refused.status, 400);
      assert.match(await refused.text(), /prompt_logprobs_last_n is/);
    }
  });

  it('deleting a checkpoint ends only its own sampling sessions', async () => {
    const model = await freshModel();
    const save = (path: string, seq_id: number) =>
      wire.post('save_weights_for_sampler', { model_id: model, path, seq_id });
    await wire.result(await save('gone', 1));
    await wire.result(await save('kept', 2));
    const open = async (name: string, sampling_session_seq_id: number) => {
      const { sampling_session_id } = await wire.post('create_sampling_session', {
        session_id: session,
        sampling_session_seq_id,
        model_path: `tinker://${model}/sampler_weights/${name}`,
      });
      return String(sampling_session_id);
    };
    const [gone, kept] = [await open('gone', 21), await open('kept', 22)];
    const url = `/api/v1/training_runs/${model}/checkpoints/sampler_weights/gone`;
    assert.equal((await wire.fetch(url, { method: 'DELETE' })).status, 204);

    assert.equal((await wire.fetch(`/api/v1/samplers/${gone}`)).status, 404);
    assert.equal((await wire.get(`samplers/${kept}`))['sampler_id'], kept);
    const { sampler_ids } = await wire.get(`sessions/${session}`);
    const listed = sampler_ids as string[];
    assert.deepEqual([listed.includes(gone), listed.includes(kept)], [false, true]);
  });

  it('the local backend accepts the JSON form of older clients', async () => {
    const model = await freshModel();
    const tensor = (data: number[], dtype: string) => ({ data, dtype, shape: [data.length] });
    const input = {
      data: [
        {
          model_input: { chunks: [{ type: 'encoded_text', tokens: [3, 4, 5, 6] }] },
          loss_fn_inputs: {
            target_tokens: tensor([4, 5, 6, 7], 'int64'),
            weights: tensor([1, 1, 1, 1], 'float32'),
          },
        },
      ],
      loss_fn: 'cross_entropy',
      loss_fn_config: {},
    };
    const ids = { model_id: model, seq_id: 1 };
    const forward = await wire.result(await wire.post('forward', { forward_input: input, ...ids }));
    const trained = await wire.result(
      await wire.post('forward_backward', {
        forward_backward_input: input,
        model_id: model,
        seq_id: 2,
      }),
    );
    const loss = (result: typeof forward) =>
      (result['metrics'] as Record<string, number>)['loss:sum']!;
    assert(Math.abs(loss(forward) - loss(trained)) < 1e-4);
    const [output] = trained['loss_fn_outputs'] as { logprobs: { data: number[] } }[];
    assert.equal(output!.logprobs.data.length, 4);
  });

  it('the local backend answers a request that is not HTTP with a detail', async () => {
    const { hostname, port } = new URL(backend.url);
    const socket = connect(Number(port), hostname);
    socket.end('nonsense\r\n\r\n');
    let text = '';
    for await (const part of socket as AsyncIterable<Buffer>) text += part.toString();
    assert.match(text, /^HTTP\/1\.1 400 [^]*\{"detail":".+"\}$/);
  });

  it('a request with too many datums fails through its future and uses up its sequence id', async () => {
    const model = await freshModel();
    const envelope = encodeForwardBackwardRequest(forwardBackward(model, 1));
    const body = Buffer.concat([envelope, Buffer.alloc(2 * 100_000, Buffer.of(0x1a, 0))]);
    const answered = await wire.fetch('/api/v1/forward_backward', {
      method: 'POST',
      headers: { 'content-type': 'application/x-protobuf' },
      body,
    });
    assert.equal(answered.status, 202);
    const failed = await wire.result((await answered.json()) as Json);
    assert.match(
      String(failed['error']),
      /more than 16384 ForwardBackwardRequest\.data; send them in/,
    );
    assert.equal(failed['category'], 'user');
    await wire.evaluation(await wire.sendForwardBackward(forwardBackward(model, 2)));

    const tooMany = { data: Array(20_000).fill({}), loss_fn: 'ppo' };
    const inJson = { forward_backward_input: tooMany, model_id: model, seq_id: 3 };
    const refused = await wire.tryPost('forward_backward', inJson);
    assert.equal(refused.status, 422);
    assert.match(await refused.text(), /Too big: expected array to have <=16384 items/);
    const objects = { ...tooMany, data: Array(400_000).fill({}) };
    const large = { ...inJson, forward_backward_input: objects };
    assert.equal((await wire.tryPost('forward_backward', large)).status, 413);
  });

  it('an operation that is refused at its POST uses its sequence id', async () => {
    const model_id = await freshModel();
    let used = 1;
    for (const [path, body] of [
      ['optim_step', { adam_params: { learning_rate: 'fast' } }],
      ['forward_backward', { forward_backward_input: {} }],
      ['save_weights', { path: 7 }],
      ['load_weights', { path: 7 }],
    ] as const) {
      const seq_id = used++;
      assert.equal((await wire.tryPost(path, { ...body, model_id, seq_id })).status, 422);
    }
    const probe = await wire.result(await wire.optimStep(model_id, 0)); // asks for the next id
    assert.match(String(probe['error']), /expected 5, got 0/);
  });

  it('another optimizer and unknown options are refused by name', async () => {
    const reason = async (path: string, body: unknown) => {
      const response = await wire.tryPost(path, body);
      assert.equal(response.status, 422);
      return response.text();
    };
    const create = createModelBody(session, 98);
    const dimuon = { ...create, optimizer_config: { type: 'dimuon', version: 1 } };
    assert.match(
      await reason('create_model', dimuon),
      /optimizer_config is .*dimuon.*: only .*adamw.* runs here; choose AdamOptimizerConfig/,
    );
    assert.match(
      await reason('create_model', { ...create, lora_config: { rank: 4, alpha: 8 } }),
      /alpha is 8: not supported here; leave it out/,
    );
    const model_id = await freshModel();
    assert.match(
      await reason('optim_step', { model_id, optimizer_params: { type: 'dimuon' }, seq_id: 1 }),
      /optimizer_params is .*dimuon/,
    );
    const adam_params = { learning_rate: 0.1, amsgrad: true };
    assert.match(
      await reason('optim_step', { model_id, adam_params, seq_id: 2 }),
      /amsgrad is true/,
    );
    await wire.post('create_model', { ...create, optimizer_config: { type: 'adamw' } });
  });

  it('every invalid request is refused with a status and a detail', async () => {
    const refusals: [Promise<Response>, number][] = [
      [fetch(`${backend.url}/api/v1/sessions`), 401],
      [wire.fetch('/api/v1/sessions', { headers: { 'x-api-key': 'tml-other' } }), 403],
      [wire.fetch('/api/v1/nothing'), 404],
      [wire.fetch('/api/v1/optim_step'), 405],
      [wire.tryPost('optim_step', { model_id: 7 }), 422],
      [wire.tryPost('get_info', { model_id: 'unknown' }), 404],
      [wire.tryPost('session_heartbeat', { session_id: 'unknown' }), 404],
      [wire.tryPost('create_model', { ...createModelBody(session, 99), base_model: 'x' }), 404],
      [wire.tryPost('retrieve_future', { request_id: 'unknown' }), 404],
      [wire.tryPost('asample', sampleBody('unknown')), 404],
      [wire.tryPost('asample', { ...sampleBody('unknown'), sampling_session_id: null }), 400],
      [
        wire.fetch('/api/v1/forward_backward', {
          method: 'POST',
          headers: { 'content-type': 'application/x-protobuf' },
          body: Uint8Array.of(255, 255),
        }),
        422,
      ],
      [
        wire.fetch('/api/v1/telemetry', {
          method: 'POST',
          headers: { 'content-encoding': 'zstd' },
          body: '{}',
        }),
        415,
      ],
      [
        wire.fetch('/api/v1/telemetry', {
          method: 'POST',
          body: new Uint8Array(64 * 1024 * 1024 + 1),
        }),
        413,
      ],
    ];
    for (const [request, status] of refusals) {
      const response = await request;
      const body = (await response.json()) as { detail?: unknown };
      assert.equal(response.status, status, JSON.stringify(body));
      assert(body.detail !== undefined && body.detail !== '', response.url);
      // Without it the Python SDK attributes a 400 to a proxy and repeats the request for hours.
      assert(Number(response.headers.get('content-length')) > 0, response.url);
    }
  });
});

function sampleBody(samplingSessionId: string, params: Record<string, unknown> = {}) {
  return {
    num_samples: 3,
    prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4, 5] }] },
    sampling_params: { max_tokens: 8, temperature: 1, ...params },
    sampling_session_id: samplingSessionId,
    seq_id: 0,
    type: 'sample',
  };
}

async function untar(bytes: Uint8Array): Promise<Record<string, Buffer>> {
  const files: Record<string, Buffer> = {};
  const reader = extract();
  reader.end(bytes);
  for await (const entry of reader) {
    const parts: Buffer[] = [];
    for await (const part of entry as AsyncIterable<Buffer>) parts.push(part);
    files[entry.header.name] = Buffer.concat(parts);
  }
  return files;
}
