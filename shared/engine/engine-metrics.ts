/** What a server says of itself under /metrics; undefined where it does not, or not in a form that is known. */
export interface EngineMetrics {
  readonly running: number | undefined; // sequences that are being decoded
  readonly waiting: number | undefined; // sequences that wait for room in the batch
  readonly kvUsage: number | undefined; // share of the cache of keys and values, 0 to 1
  readonly kvTokens: number | undefined; // tokens for which that cache has room
  readonly preemptions: number | undefined; // sequences that lost their room in it, since the server started
  readonly generatedTokens: number | undefined; // since the server started; undefined also if it counts them only as requests end
  readonly promptTokens: number | undefined; // read, since the server started
  readonly startedAt: number | undefined; // s since the epoch
  readonly parts: number | undefined; // engines behind its address (data parallelism)
}

/** The figures that an actor uses and a server does not show. */
export function unknownIn(metrics: EngineMetrics | undefined): string[] {
  const used = ['running', 'waiting', 'kvUsage', 'generatedTokens'] as const;
  return used.filter((figure) => metrics?.[figure] === undefined);
}

/** One series of the Prometheus text format. */
interface Series {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

/** The series of a name, or of one mode of it. */
type Selector = string | { readonly name: string; readonly mode: string };

/** Where a kind of server has each figure; a figure may have had several names. */
interface MetricNames {
  readonly running: readonly Selector[];
  readonly waiting: readonly Selector[];
  readonly kvUsage: readonly Selector[];
  readonly preemptions: readonly Selector[];
  readonly generatedTokens: readonly Selector[];
  readonly promptTokens: readonly Selector[];
  readonly part: string; // the label that numbers the engines of a server
  readonly kvTokens: {
    readonly name: string;
    readonly read: (series: Series) => number | undefined;
  };
}

const startTime = 'process_start_time_seconds';
const nameOfLine = /^[a-zA-Z_:][\w:]*/;
const line = /^([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)/;
const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/**
 * Reads the Prometheus text format. Several series of a name are the parts of one server (data parallelism): counts are added up,
 * of usages the largest counts.
 */
export function readEngineMetrics(text: string, names: MetricNames): EngineMetrics {
  const series = new Map<string, Series[]>(usedNames(names).map((name) => [name, []]));
  for (const each of text.split('\n')) {
    // Most lines are others: of vLLM's adapters there are thousands.
    if (!series.has(nameOfLine.exec(each)?.[0] ?? '')) continue;
    const [, name, labels = '', digits] = line.exec(each) ?? [];
    const value = Number(digits);
    if (name === undefined || !Number.isFinite(value) || value < 0) continue;
    series.get(name)?.push({ name, labels: labelsIn(labels), value });
  }
  const shown = (name: string) => {
    const found = series.get(name)!;
    return found.length === 0 ? undefined : found;
  };
  // A mode without a series has not occurred yet: it counts nothing, where an unknown name says nothing.
  const select = (selector: Selector) =>
    typeof selector === 'string'
      ? shown(selector)
      : shown(selector.name)?.filter(({ labels }) => labels.get('mode') === selector.mode);
  const seriesOf = (known: readonly Selector[]) => known.map(select).find(Boolean);
  const values = (known: readonly Selector[]) => seriesOf(known)?.map(({ value }) => value);
  const total = (known: readonly Selector[]) =>
    values(known)?.reduce((sum, value) => sum + value, 0);
  const usage = Math.max(...(values(names.kvUsage) ?? [NaN]));
  const [cache] = shown(names.kvTokens.name) ?? [];
  return {
    running: total(names.running),
    waiting: total(names.waiting),
    kvUsage: usage <= 1 ? usage : undefined,
    kvTokens: cache && names.kvTokens.read(cache),
    preemptions: total(names.preemptions),
    generatedTokens: total(names.generatedTokens),
    promptTokens: total(names.promptTokens),
    startedAt: values([startTime])?.[0],
    parts: distinct(seriesOf(names.running)?.map(({ labels }) => labels.get(names.part))),
  };
}

function distinct(values: readonly unknown[] | undefined): number | undefined {
  return values && new Set(values).size;
}

function usedNames({ kvTokens, part: _, ...selectors }: MetricNames): string[] {
  const names = Object.values(selectors)
    .flat()
    .map((selector) => (typeof selector === 'string' ? selector : selector.name));
  return [...names, kvTokens.name, startTime];
}

function labelsIn(text: string): Map<string, string> {
  return new Map(Array.from(text.matchAll(label), ([, name, value]) => [name!, value!]));
}

/** As of vLLM 0.32; `gpu_cache_usage_perc` until 0.10. */
export const vllmMetrics: MetricNames = {
  running: ['vllm:num_requests_running'],
  waiting: ['vllm:num_requests_waiting'],
  kvUsage: ['vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc'],
  preemptions: ['vllm:num_preemptions_total'],
  generatedTokens: ['vllm:generation_tokens_total'],
  promptTokens: ['vllm:prompt_tokens_total'],
  part: 'engine',
  kvTokens: {
    name: 'vllm:cache_config_info',
    read: ({ labels }) => {
      const number = (name: string) => Number(labels.get(name) ?? NaN);
      return (
        number('kv_cache_size_tokens') ||
        number('num_gpu_blocks') * number('block_size') ||
        undefined
      );
    },
  },
};

/** Counts as tokens are drawn; `sglang:generation_tokens_total` and its like only count those of requests that have ended. */
const realtimeTokens = 'sglang:realtime_tokens_total';

/** As of SGLang 0.5.23; it shows them only with `--enable-metrics`, and older ones count neither retractions nor tokens in real time. */
export const sglangMetrics: MetricNames = {
  running: ['sglang:num_running_reqs'],
  waiting: ['sglang:num_queue_reqs'],
  kvUsage: ['sglang:token_usage'],
  preemptions: ['sglang:num_retracted_requests_total'],
  generatedTokens: [{ name: realtimeTokens, mode: 'decode' }],
  promptTokens: [{ name: realtimeTokens, mode: 'prefill_compute' }],
  part: 'dp_rank',
  kvTokens: { name: 'sglang:max_total_num_tokens', read: ({ value }) => value },
};

/** Whether the server that said `now` is not the process that said `before`: it started later, or its counters fell. */
export function isAnotherProcess(before: EngineMetrics, now: EngineMetrics): boolean {
  const { startedAt } = before;
  if (startedAt !== undefined && now.startedAt !== undefined && startedAt !== now.startedAt) {
    return true;
  }
  return (['generatedTokens', 'promptTokens', 'preemptions'] as const).some(
    (counter) => (now[counter] ?? Infinity) < (before[counter] ?? 0),
  );
}

/** Whether a server has read or drawn a token in between; undefined if it counts neither. */
export function hasWorked(before: EngineMetrics, now: EngineMetrics): boolean | undefined {
  const counters = (['generatedTokens', 'promptTokens'] as const).filter(
    (counter) => before[counter] !== undefined && now[counter] !== undefined,
  );
  if (counters.length === 0) return undefined;
  return counters.some((counter) => now[counter]! > before[counter]!);
}
