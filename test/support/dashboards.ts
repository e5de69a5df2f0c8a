import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';

const folder = join(packageRoot, 'deploy/grafana/dashboards');

/** A dashboard of the repository, with its queries as Grafana would send them. */
export interface ShownDashboard {
  readonly title: string;
  readonly panels: readonly ShownPanel[];
}

export interface ShownPanel {
  readonly name: string;
  readonly description: string;
  readonly gridPos: {
    readonly x: number;
    readonly y: number;
    readonly w: number;
    readonly h: number;
  };
  readonly targets: readonly { readonly promql: string }[];
}

/** All of them, with every run chosen. @param interval what Grafana takes for `$__rate_interval`. */
export async function dashboards(interval = '1m'): Promise<ShownDashboard[]> {
  const names = (await readdir(folder)).sort();
  return await Promise.all(
    names.map(async (name) => {
      const { title, panels } = JSON.parse(await readFile(join(folder, name), 'utf8')) as File;
      return {
        title,
        panels: panels.map(({ title, targets, ...rest }) => ({
          ...rest,
          name: title,
          targets: targets.map(({ expr }) => ({
            promql: expr.replaceAll('$__rate_interval', interval).replaceAll('$run', '.*'),
          })),
        })),
      };
    }),
  );
}

/** The parts of Grafana's format that are read here. */
interface File {
  readonly title: string;
  readonly panels: readonly {
    readonly title: string;
    readonly description: string;
    readonly gridPos: ShownPanel['gridPos'];
    readonly targets: readonly { readonly expr: string }[];
  }[];
}
