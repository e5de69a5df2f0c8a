import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { Reply } from '../shared/service/http-server.js';
import { CopyWeightsRequest, TtlRequest } from '../shared/tinker/api.js';
import { parseTinkerPath, type TinkerPath } from '../shared/tinker/tinker-path.js';
import type { Archives } from './archives.js';
import { deleteCheckpoint } from './checkpoint-expiry.js';
import {
  adapterFiles,
  checkpointKinds,
  expiryAfter,
  type CheckpointMetadata,
  type CheckpointStore,
  formatTinkerPath,
  pathOf,
} from './checkpoint-store.js';
import {
  type ApiRequest,
  badRequest,
  jsonReply,
  notFound,
  readJson,
  readPage,
  type Route,
} from './http-api.js';
import { ResendMemory } from './resend-memory.js';
import type { SamplingSessions } from './sampling-sessions.js';
import type { TrainingRuns } from './training-runs.js';

/** Routes for saved weights and their training runs, including those of earlier processes. */
export function checkpointRoutes(
  store: CheckpointStore,
  runs: TrainingRuns,
  samplers: Pick<SamplingSessions, 'closeFor'>,
  archives: Archives,
): Route[] {
  const copies = new ResendMemory<Promise<TinkerPath>>(1_000);

  async function remove(path: TinkerPath): Promise<Reply> {
    await deleteCheckpoint(store, samplers, path);
    return noContent;
  }

  return [
    {
      method: 'GET',
      path: '/api/v1/training_runs',
      handle({ query }) {
        const { limit, offset } = readPage(query, 20);
        const ids = new Set([
          ...runs.list().map(({ id }) => id),
          ...store.list().map((saved) => saved.training_run_id),
        ]);
        const all = [...ids]
          .map((id) => describeRun(id, runs, store))
          .sort((a, b) => b.last_request_time.localeCompare(a.last_request_time));
        return jsonReply(200, {
          training_runs: all.slice(offset, offset + limit),
          cursor: { offset, limit, total_count: all.length },
        });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/training_runs/:run',
      handle: ({ params: [run] }) => jsonReply(200, describeRun(run!, runs, store)),
    },
    {
      method: 'GET',
      path: '/api/v1/training_runs/:run/checkpoints',
      handle({ params: [run], query }) {
        // Throws 404 for an unknown run; a known run may have no checkpoints.
        const { training_run_id: id } = describeRun(run!, runs, store);
        const all = store.list(id);
        // All of them by default: the SDK reads only one page, and the newest are last.
        return listCheckpoints(all, readPage(query, Math.max(1, all.length)));
      },
    },
    {
      method: 'GET',
      path: '/api/v1/training_runs/:run/checkpoints/*/archive',
      handle(request) {
        const [run, checkpoint] = request.params;
        const path = findCheckpoint(store, runs, run!, checkpoint!);
        return redirectToArchive(request, archives.offer(store.adapterFolder(path)));
      },
    },
    {
      method: 'GET',
      path: '/api/v1/training_runs/:run/checkpoints/*/external_weights_urls',
      handle(request) {
        const [run, checkpoint] = request.params;
        const path = findCheckpoint(store, runs, run!, checkpoint!);
        if (path.kind !== 'external_weights') {
          throw badRequest(`${formatTinkerPath(path)} is no path of save_weights_external`);
        }
        const links = adapterFiles.map((file) => {
          const { token, expiresAt } = archives.offer(store.adapterFolder(path), file);
          return { file, url: archiveUrl(request, token), expiresAt };
        });
        return jsonReply(200, {
          urls: Object.fromEntries(links.map(({ file, url }) => [file, url])),
          expires: new Date(Math.min(...links.map(({ expiresAt }) => expiresAt))).toISOString(),
        });
      },
    },
    ...(['POST', 'DELETE'] as const).map((method): Route => ({
      method,
      path: '/api/v1/training_runs/:run/checkpoints/*/publish',
      async handle({ params: [run, checkpoint] }) {
        if (method === 'DELETE') {
          const named = checkpointNamedPublish(store, runs, run!, checkpoint!);
          if (named !== undefined) return remove(named);
        }
        const path = findCheckpoint(store, runs, run!, checkpoint!);
        await store.change(path, { public: method === 'POST' });
        return noContent;
      },
    })),
    {
      method: 'PUT',
      path: '/api/v1/training_runs/:run/checkpoints/*/ttl',
      async handle(request) {
        const [run, checkpoint] = request.params;
        const { ttl_seconds } = await readJson(request, TtlRequest);
        const path = findCheckpoint(store, runs, run!, checkpoint!);
        await store.change(path, { expires_at: expiryAfter(ttl_seconds) });
        return noContent;
      },
    },
    {
      method: 'DELETE', // after …/publish, which it would match
      path: '/api/v1/training_runs/:run/checkpoints/*',
      handle({ params: [run, checkpoint] }) {
        return remove(findCheckpoint(store, runs, run!, checkpoint!));
      },
    },
    {
      method: 'GET',
      path: '/api/v1/checkpoints',
      handle: ({ query }) => listCheckpoints(store.list().reverse(), readPage(query, 100)),
    },
    {
      method: 'POST',
      path: '/api/v1/copy_weights',
      async handle(request) {
        const { source_path, ttl_seconds } = await readJson(request, CopyWeightsRequest);
        const source = parseTinkerPath(source_path);
        store.get(source);
        // A resent request has the key of the first; one without a key is a request of its own.
        const key = `${String(request.headers['x-idempotency-key'] ?? randomUUID())} ${source_path}`;
        const copy = copies.getOrCreate(key, () =>
          store.copy(source, randomUUID(), expiryAfter(ttl_seconds)),
        );
        copy.catch(() => {
          copies.forget(key);
        });
        return jsonReply(200, { tinker_path: formatTinkerPath(await copy) });
      },
    },
    {
      method: 'POST',
      path: '/api/v1/weights_info',
      async handle(request) {
        const { tinker_path } = await readJson(request, z.object({ tinker_path: z.string() }));
        const saved = store.get(parseTinkerPath(tinker_path));
        return jsonReply(200, {
          base_model: saved.base_model,
          is_lora: true,
          lora_rank: saved.lora_rank,
          train_unembed: false,
          train_mlp: saved.train_mlp,
          train_attn: saved.train_attn,
        });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/archives/:token',
      access: 'open', // the token in the path is the secret: unguessable and short-lived
      async handle({ params: [token] }) {
        const { body, type } = await archives.open(token!);
        return { status: 200, headers: { 'content-type': type }, body };
      },
    },
  ];
}

const noContent: Reply = { status: 204, headers: {}, body: '' };

/** @throws {ApiError} 404 for a run that is not in training and has no checkpoint. */
function describeRun(name: string, runs: TrainingRuns, store: CheckpointStore) {
  const run = runs.find(name);
  const id = run?.id ?? name;
  const saved = store.list(id);
  const geometry = run?.geometry ?? saved.at(-1);
  if (geometry === undefined) throw notFound(`training run ${JSON.stringify(name)} is unknown`);
  const last = (kind: TinkerPath['kind']) => {
    const found = saved.findLast((checkpoint) => checkpoint.kind === kind);
    return found === undefined ? null : describeCheckpoint(found);
  };
  return {
    training_run_id: id,
    base_model: geometry.base_model,
    model_owner: 'local-user',
    is_lora: true,
    corrupted: false,
    lora_rank: geometry.lora_rank,
    last_request_time:
      run === undefined ? saved.at(-1)!.created_at : new Date(run.lastRequestAt).toISOString(),
    last_checkpoint: last('weights'),
    last_sampler_checkpoint: last('sampler_weights'),
    user_metadata: run?.userMetadata ?? saved.at(-1)?.user_metadata ?? null,
  };
}

const checkpointTypes = {
  weights: 'training',
  sampler_weights: 'sampler',
  external_weights: 'external',
} as const;

function describeCheckpoint(saved: CheckpointMetadata) {
  return {
    checkpoint_id: `${saved.kind}/${saved.name}`,
    checkpoint_type: checkpointTypes[saved.kind],
    time: saved.created_at,
    tinker_path: formatTinkerPath(pathOf(saved)),
    size_bytes: saved.size_bytes,
    public: saved.public ?? false,
    user_metadata: saved.checkpoint_user_metadata ?? null,
    expires_at: saved.expires_at ?? null,
  };
}

function listCheckpoints(
  all: readonly CheckpointMetadata[],
  { limit, offset }: { limit: number; offset: number },
): Reply {
  return jsonReply(200, {
    checkpoints: all.slice(offset, offset + limit).map(describeCheckpoint),
    cursor: { offset, limit, total_count: all.length },
  });
}

/**
 * Finds `weights/<name>`, `sampler_weights/<name>`, or a bare name; for a bare name `weights` wins, as in TuFT.
 *
 * @throws {ApiError} 404
 */
function findCheckpoint(
  store: CheckpointStore,
  runs: TrainingRuns,
  run: string,
  text: string,
): TinkerPath {
  const runId = runs.find(run)?.id ?? run;
  const [first = '', second] = text.split('/');
  const candidates = checkpointKinds
    .filter((kind) => second === undefined || kind === first)
    .map((kind) => ({ runId, kind, name: second ?? first }));
  const found = candidates.find((path) => store.has(path));
  if (found === undefined || text.split('/').length > 2) {
    throw notFound(`checkpoint ${JSON.stringify(text)} of run ${runId} not found`);
  }
  return found;
}

/** The checkpoint that `DELETE …/weights/publish` deletes: the path is also that to unpublish one named `weights`, without its kind. */
function checkpointNamedPublish(
  store: CheckpointStore,
  runs: TrainingRuns,
  run: string,
  text: string,
): TinkerPath | undefined {
  const kind = checkpointKinds.find((one) => one === text);
  if (kind === undefined) return undefined;
  const path = { runId: runs.find(run)?.id ?? run, kind, name: 'publish' };
  return store.has(path) ? path : undefined;
}

function redirectToArchive(
  request: ApiRequest,
  { token, expiresAt }: { token: string; expiresAt: number },
): Reply {
  return {
    status: 302,
    headers: {
      location: archiveUrl(request, token),
      expires: new Date(expiresAt).toUTCString(),
    },
    body: '',
  };
}

function archiveUrl({ headers }: ApiRequest, token: string): string {
  if (headers.host === undefined) throw badRequest('the Host header is missing');
  return `http://${headers.host}/api/v1/archives/${token}`;
}
