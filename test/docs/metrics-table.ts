import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { alignedTable, withSection } from './markdown-table.js';

/** A metric as the code declares it. */
export interface DeclaredMetric {
  readonly name: string;
  readonly help: string;
  readonly type: string; // counter, gauge or histogram
  readonly labels: readonly string[];
}

export const services = ['learner', 'actor', 'reward-service', 'local-backend'] as const;
export type Service = (typeof services)[number];

export const metricsPage = fileURLToPath(new URL('../../../docs/metrics.md', import.meta.url));

/** What a service imports only when its configuration asks for it. */
const importedLater: Partial<Record<Service, readonly string[]>> = {
  actor: ['sampler/connect-engine.js', 'sampler/engine-sampler.js', 'sampler/onnx-sampler.js'],
};

/** The metrics that a service's process declares when it is loaded, whatever its configuration. */
export async function declaredMetrics(service: Service): Promise<DeclaredMetric[]> {
  const script = fileURLToPath(new URL('./print-metrics.js', import.meta.url));
  const files = ['main.js', ...(importedLater[service] ?? [])];
  const modules = files.map((file) => new URL(`../../${service}/${file}`, import.meta.url).href);
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...modules]);
  return JSON.parse(stdout) as DeclaredMetric[];
}

/** The page with the table of the current metrics. */
export async function updatedPage(page: string): Promise<string> {
  return withSection(page, 'every metric', await table());
}

/** The cells of the table after a heading, without the header. */
export function tableUnder(page: string, heading: string): string[][] {
  const [, after] = split(page, `${heading}\n`);
  const [section] = after.split(/^## /m);
  const rows = section!.split('\n').filter((line) => line.startsWith('|'));
  return rows.slice(2).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

/** The texts between backticks. */
export function codeIn(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, code]) => code!);
}

async function table(): Promise<string> {
  const byName = new Map<string, { metric: DeclaredMetric; services: string[] }>();
  for (const service of services) {
    for (const metric of await declaredMetrics(service)) {
      const known = byName.get(metric.name) ?? { metric, services: [] };
      known.services.push(service.replace(/.*\//, ''));
      byName.set(metric.name, known);
    }
  }
  const rows = [...byName.values()]
    .sort((a, b) => (a.metric.name < b.metric.name ? -1 : 1))
    .map(({ metric: { name, type, labels, help }, services: exporters }) => [
      `\`${name}\``,
      type,
      labels.map((label) => `\`${label}\``).join(', '),
      exporters.join(', '),
      help,
    ]);
  return alignedTable([['metric', 'type', 'labels', 'of', 'meaning'], ...rows]);
}

function split(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  if (at === -1) throw new Error(`docs/metrics.md lacks the line ${mark}`);
  return [text.slice(0, at), text.slice(at + mark.length)];
}
