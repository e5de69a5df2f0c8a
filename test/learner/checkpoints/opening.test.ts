import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { CheckpointStore } from '../../../learner/checkpoints/checkpoint-store.js';
import { openRun } from '../../../learner/checkpoints/opening.js';
import { assertKnownToNats, findTraces } from '../../../learner/checkpoints/traces.js';
import { runNames } from '../../../shared/broker/names.js';
import { BadRequest, Unavailable } from '../../../shared/tinker/errors.js';
import type { Checkpoint, CurriculumState, TicketKey } from '../../../shared/wire/ledger.js';
import { newTicketKey, TicketIds } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/log.js';
import { checkpoint, runConfig } from '../../support/messages.js';

/** The data of a run in NATS. */
interface Server {
  ledger: Checkpoint[]; // newest first
  history: Checkpoint[]; // oldest first
  currentVersion?: number;
  versions?: number[];
  announcedVersion?: number;
  tickets?: number;
  ticketKey?: TicketKey;
}

const leadership = { confirm: () => Promise.resolve() };
let runDir: string;
beforeEach(async () => {
  runDir = await mkdtemp(join(tmpdir(), 'offbeat-opening-'));
});
afterEach(() => rm(runDir, { recursive: true }));

/** Opens the run. @param has the states at the backend; all if not given. */
async function open(server: Partial<Server>, has?: readonly string[]) {
  const { ledger = [], history = [], currentVersion, announcedVersion } = server;
  const versions = server.versions ?? (currentVersion === undefined ? [] : [currentVersion]);
  const written: Checkpoint[] = [];
  const restored: string[] = [];
  const deleted: string[] = [];
  async function* every() {
    for (const entry of history) yield await Promise.resolve({ checkpoint: entry });
  }
  const newest = (kind: string) => {
    const last = history.at(-1);
    const found = { checkpoint: last && { checkpoint: last }, version: undefined }[kind];
    const announced = announcedVersion === undefined ? undefined : { version: announcedVersion };
    return Promise.resolve(kind === 'version' ? announced : found);
  };
  const broker = {
    run: 'r',
    names: runNames('r'),
    ledger: {
      history: () => Promise.resolve(ledger),
      ticketIds: () => Promise.resolve(server.ticketKey && new TicketIds(server.ticketKey)),
      write: (entry: Checkpoint) => Promise.resolve(void written.push(entry)),
    },
    events: {
      ...{ newest, every, emit: () => Promise.resolve() },
      count: () => Promise.resolve(history.length),
    },
    policy: {
      current: () =>
        Promise.resolve(currentVersion === undefined ? undefined : { version: currentVersion }),
      versions: () => Promise.resolve(versions),
    },
    ticketsSoFar: () => Promise.resolve(server.tickets ?? 0),
  } as never;
  const failure = { operation: 'load_weights', url: 'u', detail: 'checkpoint not found' };
  const client = {
    createLoraModel: () => Promise.resolve('new'),
    restoreLoraModel: ({ statePath }: { statePath: string }) => {
      restored.push(statePath);
      if (has?.includes(statePath) ?? true) return Promise.resolve('restored');
      return Promise.reject(new BadRequest(failure));
    },
    deleteCheckpoint: (path: string) => Promise.resolve(void deleted.push(path)),
    listCheckpoints: () => Promise.resolve((has ?? []).map((path) => ({ path }))),
  };
  const options = { broker, runDir, log: silent };
  const traces = await findTraces(options);
  assertKnownToNats('r', traces);
  const opened = await openRun({
    ...options,
    traces,
    leadership,
    client: client as never,
    checkpoints: new CheckpointStore(options),
    config: runConfig(),
  });
  return { opened, written, restored, deleted, client };
}

const state = (step: number) => `tinker://run/weights/step-${step}`;
const at = (step: number, over: Partial<Checkpoint> = {}) =>
  checkpoint({ step, version: step, serial: step + 1, statePath: state(step), ...over });

describe('opening a run', () => {
  it('a new run begins with version 0 and no rewinds', async () => {
    const { opened, written } = await open({});
    assert.deepEqual([opened.version, opened.rewinds], [0, []]);
    assert.deepEqual(written, []);
  });

  it('restored weights get a version above all published ones, and the ledger has the rewind', async () => {
    const before = [{ from: 5, to: 3 }];
    const saved = checkpoint({ step: 4, version: 6, rewinds: before });
    const { opened, written } = await open({ ledger: [saved], currentVersion: 8 });
    const rewinds = [...before, { from: 9, to: 6 }];
    assert.deepEqual([opened.version, opened.rewinds], [9, rewinds]);
    assert.deepEqual(written, [{ ...saved, rewinds, serial: 1 }]);
  });

  it('restored weights get a version above all known ones even if the manifest is gone', async () => {
    const ledger = [checkpoint({ version: 6 })];
    const version = async (server: Partial<Server>) =>
      (await open({ ledger, ...server })).opened.version;
    assert.equal(await version({ versions: [4, 8] }), 9);
    assert.equal(await version({ announcedVersion: 9 }), 10);
  });

  it('a ledger written before rewinds existed can be read', async () => {
    const saved = checkpoint({ version: 6 });
    delete saved.rewinds;
    const { opened } = await open({ ledger: [saved], currentVersion: 6 });
    assert.deepEqual(opened.rewinds, [{ from: 7, to: 6 }]);
  });

  it('a version that a crash kept from being published is used again', async () => {
    const rewinds = [{ from: 9, to: 6 }];
    const ledger = [checkpoint({ version: 6, rewinds })];
    const { opened, written } = await open({ ledger, currentVersion: 8 });
    assert.deepEqual([opened.version, opened.rewinds], [9, rewinds]);
    assert.deepEqual(written.at(-1)?.rewinds, rewinds);
  });

  it('weights that were saved and not published yet keep their version', async () => {
    const { opened, written } = await open({
      ledger: [checkpoint({ version: 6 })],
      currentVersion: 4,
    });
    assert.deepEqual([opened.version, opened.rewinds], [6, []]);
    assert.deepEqual(written, []);
  });
});

describe('a run whose ledger is damaged', () => {
  it('a run without a ledger resumes from the copy in its history', async () => {
    const { opened, written } = await open({ history: [at(1), at(2)], currentVersion: 2 });
    assert.deepEqual([opened.step, opened.isResumed], [2, true]);
    assert.deepEqual(
      written.map(({ step, serial }) => [step, serial]),
      [[2, 4]],
    );
  });

  it('a run resumes from its history if the ledger has only an older checkpoint', async () => {
    const { opened, written } = await open({ ledger: [at(1)], history: [at(1), at(2)] });
    assert.equal(opened.step, 2);
    assert.equal(written.at(-1)?.step, 2);
  });

  it('a run resumes from the copy in its folder if a power failure made that the newest', async () => {
    const content = { v: 1, run: 'r', checkpoint: at(3) };
    await writeFile(join(runDir, 'checkpoint.json'), JSON.stringify(content));
    const { opened } = await open({ ledger: [at(1)], history: [at(1)] });
    assert.equal(opened.step, 3);
    await writeFile(join(runDir, 'checkpoint.json'), JSON.stringify({ ...content, run: 'other' }));
    assert.equal((await open({ ledger: [at(1)], history: [at(1)] })).opened.step, 1);
    await writeFile(join(runDir, 'checkpoint.json'), '{"v":1,"ru');
    assert.equal((await open({ ledger: [at(1)], history: [at(1)] })).opened.step, 1);
  });

  it('a run resumes from the newest state that the backend still has', async () => {
    const server = { ledger: [at(4), at(2)], history: [at(0), at(1), at(2), at(3), at(4)] };
    const { opened, restored, written } = await open(server, [state(0), state(3)]);
    assert.equal(opened.step, 3);
    assert.deepEqual(restored, [state(4), state(3)]);
    assert.equal(written.at(-1)?.serial, 6); // above that of the checkpoint that could not be restored
  });

  it('a run restored from a copy deletes no state that the copy does not name', async () => {
    const states = [{ step: 4, path: state(4) }];
    const has = [state(4), 'tinker://run/weights/state-000009'];
    const whole = await open({ ledger: [at(4, { states })] }, has);
    assert.deepEqual(whole.deleted, ['tinker://run/weights/state-000009']);
    const damaged = await open({ history: [at(4, { states })] }, has);
    assert.deepEqual([damaged.opened.step, damaged.deleted], [4, []]);
  });

  it('a trained run that cannot be restored is refused, with a list of what is left of it', async () => {
    const message = /no checkpoint is left[^]*policy_r: policy versions up to 38/;
    await assert.rejects(open({ currentVersion: 38 }), { name: 'UserError', message });
    await assert.rejects(open({ tickets: 4 }), /TICKETS_r: 4 tickets were issued/);
    await assert.rejects(open({ history: [at(3)] }, []), /EVENTS_r: 1 events/);
    await assert.rejects(open({ ledger: [at(4)], history: [at(3)] }, []), (error: Error) => {
      assert.match(error.message, /step 4 in the ledger: .*checkpoint not found/);
      assert.match(error.message, /step 3 in the history: .*checkpoint not found/);
      assert.match(error.message, /ledger_r: a checkpoint of step 4/);
      return error.name === 'UserError';
    });
  });

  it('opening a run fails with the error of the backend if that may still have the state', async () => {
    const server = { ledger: [at(4)], history: [at(3)] };
    const { client } = await open(server);
    const trouble = new Unavailable({ operation: 'o', url: 'u', status: 500, detail: 'd' });
    client.restoreLoraModel = () => Promise.reject(trouble);
    const broker = { run: 'r' } as never;
    const traces = { inNats: ['something'], inFolder: [] };
    const checkpoints = {
      async *found() {
        yield await Promise.resolve({ checkpoint: at(4), where: 'the ledger' });
      },
      write: () => Promise.resolve(),
    };
    const options = { broker, traces, leadership, checkpoints, config: runConfig(), log: silent };
    client.listCheckpoints = () => Promise.resolve([{ path: state(4) }]);
    await assert.rejects(openRun({ ...options, client: client as never }), trouble);
    client.listCheckpoints = () => Promise.resolve([]); // TuFT answers 500 for a missing state
    await assert.rejects(openRun({ ...options, client: client as never }), /does not have tinker:/);
  });
});

describe('a run unknown to NATS', () => {
  it('a run unknown to NATS is refused in a folder that has its history', async () => {
    await writeFile(join(runDir, 'metrics.jsonl'), '{"step":1}\n{"step":2}\n');
    await assert.rejects(open({}), (error: Error) => {
      assert.match(error.message, /NATS holds nothing of run r, which has been trained:/);
      assert.match(error.message, /metrics\.jsonl: 2 steps/);
      return error.name === 'UserError';
    });
    assert.equal(await readFile(join(runDir, 'metrics.jsonl'), 'utf8'), '{"step":1}\n{"step":2}\n');
  });

  it('a run unknown to NATS is refused in a folder that has only its checkpoint', async () => {
    const content = { v: 1, run: 'r', checkpoint: at(3) };
    await writeFile(join(runDir, 'checkpoint.json'), JSON.stringify(content));
    await assert.rejects(open({}), /checkpoint\.json: a checkpoint of step 3/);
  });

  it('a run unknown to NATS begins in a folder where nothing was trained', async () => {
    const content = { v: 1, run: 'r', checkpoint: at(0) };
    await writeFile(join(runDir, 'checkpoint.json'), JSON.stringify(content));
    await writeFile(join(runDir, 'metrics.jsonl'), '');
    assert.equal((await open({})).opened.isResumed, false);
  });
});

describe('a folder with the checkpoint of another run of the same name', () => {
  const [ours, other] = [newTicketKey(), newTicketKey()];
  const putCopy = async (ticketKey: TicketKey) => {
    const content = { v: 1, run: 'r', checkpoint: at(9, { ticketKey }) };
    await writeFile(join(runDir, 'checkpoint.json'), JSON.stringify(content));
  };

  it('a folder is refused if its ticket key differs from the one in NATS, and both runs are named', async () => {
    await putCopy(other);
    const servers: Partial<Server>[] = [
      { ledger: [at(4)], ticketKey: ours },
      { ledger: [at(4, { ticketKey: ours })] }, // the ledger has lost the key itself
      { ledger: [at(4)], history: [at(4, { ticketKey: ours })] },
    ];
    for (const server of servers) {
      await assert.rejects(open(server), (error: Error) => {
        assert.match(error.message, /checkpoint\.json is of another run that is also named r/);
        assert.match(error.message, /checkpoint\.json: a checkpoint of step 9/);
        assert.match(error.message, /ledger_r: a checkpoint of step 4/);
        return error.name === 'UserError';
      });
    }
  });

  it('a folder is accepted if its ticket key is that of the run, or if NATS has no key', async () => {
    await putCopy(ours);
    assert.equal((await open({ ledger: [at(4)], ticketKey: ours })).opened.step, 9);
    assert.equal((await open({ ledger: [at(4)] })).opened.step, 9);
  });
});

describe('the copy of a checkpoint in the history', () => {
  it('the copy of a checkpoint in the history leaves out the results of difficulty-aware sampling', async () => {
    const written: Checkpoint[] = [];
    const emitted: { checkpoint: Checkpoint }[] = [];
    const ledger = { write: (entry: Checkpoint) => Promise.resolve(void written.push(entry)) };
    const events = {
      emit: (event: { checkpoint: Checkpoint }) => Promise.resolve(void emitted.push(event)),
    };
    const broker = { run: 'r', ledger, events } as never;
    const curriculum: CurriculumState = { decidedTo: 2, decided: [[2, 0]], tried: [[0, 1, 1]] };
    await new CheckpointStore({ broker, runDir, log: silent }).write(at(4, { curriculum }));
    assert.deepEqual(written[0]!.curriculum, curriculum);
    assert.deepEqual(emitted[0]!.checkpoint.curriculum, { ...curriculum, tried: [] });
  });
});
