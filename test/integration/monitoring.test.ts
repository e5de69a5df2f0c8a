import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { dashboards } from '../support/dashboards.js';
import { Prometheus, prometheusPrograms } from '../support/prometheus.js';
import { UpProcess } from '../support/up-process.js';
import { until } from '../support/waiting.js';

/** Small steps, frequent evaluations and two difficulties, so that every metric soon has data. */
const flags = [
  ...['--groups-per-batch=4', '--group-size=8', '--num-minibatches=2', '--lora-rank=2'],
  '--train-size=512',
  ...['--eval-problems=16', '--eval-samples=1', '--eval-every-versions=2', '--numbers=3,4'],
  ...['--max-minutes=30', '--actors=1', '--gpus-trainer=1', '--price-trainer-hour=2'],
];
const services = ['learner', 'actor-0', 'reward-service', 'local-backend'];
const rules = ['recording', 'alerts'].map((name) =>
  join(packageRoot, `deploy/prometheus/${name}.yaml`),
);

describe('a real Prometheus that scrapes a real run', { timeout: 480_000 }, async () => {
  const programs = await prometheusPrograms();
  const skip = typeof programs === 'string' && programs;

  it('a real Prometheus has data for every panel and no failing rule', { skip }, async () => {
    assert(typeof programs !== 'string');
    await using up = await UpProcess.start(flags);
    await up.says(/step \d/);
    const ports = await Promise.all(services.map((service) => healthPort(up, service)));
    const targets = Object.fromEntries(
      services.map((service, i) => [service.replace(/-0$/, ''), `127.0.0.1:${ports[i]}`]),
    );

    await using prometheus = await Prometheus.start(programs, up.run, targets, rules);
    const queries = (await dashboards('10s')).flatMap(({ title, panels }) =>
      panels.flatMap(({ name, targets }) =>
        targets.map(({ promql }) => ({ where: `${title} ${name}`, promql })),
      ),
    );
    // Evaluations and publications take a while, and a rate needs two scrapes.
    const empty = new Set(queries);
    await until(async () => {
      for (const query of empty) {
        const samples = await prometheus.query(query.promql);
        if (samples.some(({ value }) => Number.isFinite(value))) empty.delete(query);
      }
      return empty.size === 0 || (await steps(prometheus)) > 120;
    });
    assert.deepEqual([...empty], []);

    const wrong = await prometheus.query('ALERTS{alertstate="firing"}');
    assert.deepEqual(wrong, []);
    for (const port of ports) assert.equal(await lint(programs.promtool, port), '');
  });
});

async function steps(prometheus: Prometheus): Promise<number> {
  const [sample] = await prometheus.query('rl_steps_total');
  return sample?.value ?? 0;
}

async function healthPort(up: UpProcess, service: string): Promise<number> {
  const [, port] = /"healthPort":(\d+)/.exec(await up.read(`logs/${service}.log`))!;
  return Number(port);
}

/** promtool's complaints about the metrics of a process, except those that prom-client adds. */
async function lint(promtool: string, port: number): Promise<string> {
  const page = await fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text());
  const isOurs = (line: string): boolean => !/^(# \w+ )?(nodejs|process)_/.test(line);
  const child = spawn(promtool, ['check', 'metrics'], { stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin.end(`${page.split('\n').filter(isOurs).join('\n')}\n`);
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return out + err;
}
