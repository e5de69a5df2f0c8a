import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { withDebianPackage } from '../../cli/debian-package.js';
import { freePort } from '../../cli/processes/free-port.js';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { cacheFolder } from '../../shared/base/package-root.js';
import { until } from './waiting.js';

/** The paths of the official programs. */
export interface PrometheusPrograms {
  readonly prometheus: string;
  readonly promtool: string;
}

/**
 * Prometheus and promtool of PATH, otherwise of Debian's package `prometheus`, which is unpacked into the
 * cache and not installed.
 *
 * @returns the reason, if they are unavailable: a test skips with it.
 */
export async function prometheusPrograms(): Promise<PrometheusPrograms | string> {
  const folders = searchFolders(process.env['PATH']);
  const [prometheus] = await findExecutables('prometheus', folders);
  const [promtool] = await findExecutables('promtool', folders);
  if (prometheus !== undefined && promtool !== undefined) return { prometheus, promtool };

  const cache = join(cacheFolder, 'prometheus');
  const programs = join(cache, 'bin');
  const cached = { prometheus: join(programs, 'prometheus'), promtool: join(programs, 'promtool') };
  if (await exists(cached.promtool)) return cached;
  const [aptGet] = await findExecutables('apt-get', folders);
  const [dpkgDeb] = await findExecutables('dpkg-deb', folders);
  if (aptGet === undefined || dpkgDeb === undefined) {
    return 'no prometheus on PATH, and no apt-get to fetch the package of Debian or Ubuntu';
  }
  await mkdir(cache, { recursive: true });
  return await withDebianPackage('prometheus', cache, { aptGet, dpkgDeb }, async (unpacked) => {
    try {
      await rename(join(unpacked, 'usr', 'bin'), programs);
    } catch (caught) {
      if (!(await exists(cached.promtool))) throw caught; // otherwise another test was faster
    }
    return cached;
  });
}

/** The result of an instant query: one value per series. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A real Prometheus that scrapes every second, on a free loopback port. */
export class Prometheus implements AsyncDisposable {
  private constructor(
    readonly url: string,
    private readonly folder: string,
    private readonly child: ChildProcess,
  ) {}

  /**
   * @param targets by service: the `host:port` to scrape, all labeled with one run.
   * @param rules files of rules.
   */
  static async start(
    { prometheus }: PrometheusPrograms,
    run: string,
    targets: Readonly<Record<string, string>>,
    rules: readonly string[],
  ): Promise<Prometheus> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-prometheus-'));
    const port = await freePort();
    const groups = Object.entries(targets).map(([service, target]) => ({
      targets: [target],
      labels: { run, service },
    }));
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: rules,
      scrape_configs: [{ job_name: 'offbeat', static_configs: groups }],
    };
    await writeFile(join(folder, 'prometheus.yml'), JSON.stringify(config)); // YAML, too
    const child = spawn(
      prometheus,
      [
        `--config.file=${join(folder, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--log.level=error',
      ],
      { stdio: 'ignore' },
    );
    const server = new Prometheus(`http://127.0.0.1:${port}`, folder, child);
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`prometheus ended with ${child.exitCode}`);
      return await fetch(`${server.url}/-/ready`).then(
        ({ ok }) => ok,
        () => false,
      );
    });
    return server;
  }

  /** @throws with Prometheus' message, if it cannot evaluate the query. */
  async query(promql: string): Promise<Sample[]> {
    const response = await fetch(`${this.url}/api/v1/query`, {
      method: 'POST',
      body: new URLSearchParams({ query: promql }),
    });
    const body = (await response.json()) as {
      error?: string;
      data?: { result: { metric: Record<string, string>; value: [number, string] }[] };
    };
    if (body.data === undefined) throw new Error(`${promql}: ${body.error ?? 'no answer'}`);
    return body.data.result.map(({ metric, value }) => ({
      labels: metric,
      value: Number(value[1]),
    }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.child, 'close');
    this.child.kill('SIGKILL');
    if (this.child.exitCode === null) await ended;
    await rm(this.folder, { recursive: true, force: true });
  }
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
