import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { runNames } from '../../shared/broker/names.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { flagsIn, knownFlags } from './flags.js';
import { codeIn, declaredMetrics, services, tableUnder } from './metrics-table.js';
import { codeSpans, linksOf, readPages, type Page } from './pages.js';

describe('the documentation', async () => {
  const pages = await readPages();
  const textOf = new Map(pages.map(({ path, text }) => [path, text]));
  const metrics = await Promise.all(services.map(declaredMetrics));
  const metricNames = new Set(metrics.flat().map(({ name }) => name));
  const isField = fieldsOf(textOf.get('docs/metrics.md')!);

  it('the documentation links only to existing files and headings', () => {
    const broken = pages.flatMap((page) =>
      linksOf(page)
        .filter((link) => !leadsSomewhere(page, link))
        .map((link) => `${page.path}: ${link}`),
    );
    assert.deepEqual(broken, []);
  });

  it('the documentation names only existing files', () => {
    const path =
      /^(?:docs|shared|learner|actor|reward-service|local-backend|cli|tools|deploy|test)\/[\w./-]+$/;
    assert.deepEqual(
      spansOf(pages, (code) => path.test(code) && !existsSync(join(packageRoot, code))),
      [],
    );
  });

  it('the documentation names only existing flags', async () => {
    const known = await knownFlags();
    const isForeign = (code: string) =>
      /^(kubectl|docker|helm|pip|python|tuft|vllm|sglang|nats-server|node|npm sbom)\b/.test(code);
    assert.deepEqual(
      spansOf(pages, (code) => !isForeign(code) && flagsIn(code).some((flag) => !known.has(flag))),
      [],
    );
  });

  it('the documentation names only declared metrics', () => {
    const isUnknown = (code: string) =>
      (code.match(/\b(?:rl|broker|reward_service|local_backend)_[a-z0-9_]+\b/g) ?? []).some(
        (name) => !metricNames.has(name.replace(/_(bucket|sum|count)$/, '')),
      );
    assert.deepEqual(spansOf(pages, isUnknown), []);
  });

  it('the documentation names only existing fields of metrics.jsonl', () => {
    const group =
      /^(env|staleness|version_span|idle|actors|ratio|by_group|dropped|eval|mask|weights|publish_seconds|stream_depth|kl_sample_train_v[12])\/[\w./*<>]+$/;
    assert.deepEqual(
      spansOf(pages, (code) => group.test(code) && !isField(code)),
      [],
    );
  });

  it('docs/operating.md names everything that a run leaves on a NATS server', () => {
    const { streams, buckets, objects } = runNames('x');
    const names = [streams, buckets, objects].flatMap((kind) => Object.values(kind));
    const [, end] = textOf.get('docs/operating.md')!.split('## When it is over');
    const told = new Set(codeIn(end!));
    assert.deepEqual(
      names.map((name) => name.replace(/x$/, '…')).filter((name) => !told.has(name)),
      [],
    );
  });

  it('the troubleshooting pages name an existing metric for each symptom', () => {
    const troubleshooting = ['docs/troubleshooting.md', 'docs/zh/troubleshooting.md'];
    for (const path of troubleshooting) {
      const rows = tableRows(textOf.get(path)!);
      assert(rows.length >= 12, path);
      const measures = rows.flatMap(([, cell]) => codeIn(cell!));
      const unknown = measures.filter(
        (name) => !metricNames.has(name) && !isField(name) && !/^nodejs_/.test(name),
      );
      assert.deepEqual(unknown, [], path);
    }
  });

  it('docs/monitoring.md explains each alert at the target of its runbook link', async () => {
    const rules = await readFile(join(packageRoot, 'deploy/prometheus/alerts.yaml'), 'utf8');
    const { groups } = parse(rules) as { groups: { rules: Alert[] }[] };
    const alerts = groups.flatMap((group) => group.rules);
    const monitoring = textOf.get('docs/monitoring.md')!;
    const [, runbooks] = monitoring.split('## Alerts, and what to do\n');
    const sections = [...runbooks!.matchAll(/^### (\w+)\n\n(.+)/gm)];
    assert.deepEqual(
      sections.map(([, name]) => name),
      alerts.map(({ alert }) => alert),
    );
    for (const { alert, annotations } of alerts) {
      const { pathname, hash } = new URL(annotations['runbook_url']!);
      assert.equal(hash, `#${alert.toLowerCase()}`);
      assert(anchorsOf(monitoring).has(hash.slice(1)), hash);
      assert.match(pathname, /[/]monitoring[.]md$/);
    }
  });

  function leadsSomewhere({ path, text }: Page, link: string): boolean {
    const [file = '', anchor] = link.split('#', 2);
    const target = file === '' ? path : normalize(join(dirname(path), file));
    if (!existsSync(join(packageRoot, target))) return false;
    if (anchor === undefined) return true;
    const there = file === '' ? text : textOf.get(target);
    return there !== undefined && anchorsOf(there).has(decodeURIComponent(anchor));
  }
});

interface Alert {
  readonly alert: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** The anchors that GitHub gives to the headings of a page. */
function anchorsOf(text: string): Set<string> {
  const headings = text.replace(/^```[^]*?^```$/gm, '').matchAll(/^#+ +(.+)$/gm);
  return new Set(
    [...headings].map(([, heading]) =>
      heading!
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replace(/\s/g, '-'),
    ),
  );
}

/** The wrong code spans with their pages. */
function spansOf(pages: readonly Page[], isWrong: (code: string) => boolean): string[] {
  return pages.flatMap((page) =>
    codeSpans(page)
      .filter(isWrong)
      .map((code) => `${page.path}: ${code}`),
  );
}

/** A test whether the page on metrics lists a name as a field of metrics.jsonl. */
function fieldsOf(page: string): (name: string) => boolean {
  const listed = [
    ...tableUnder(page, '## Every field of `metrics.jsonl`').flatMap(([cell]) => codeIn(cell!)),
    ...tableUnder(page, '## What to look at').flatMap(([, , cell]) => codeIn(cell!)),
  ];
  const patterns = listed.map(
    (name) =>
      new RegExp(`^${name.replace(/[.*+?^$()]/g, '\\$&').replace(/<\w+>/g, '[\\w.<>*]+')}$`),
  );
  return (name) => patterns.some((pattern) => pattern.test(name));
}

/** The rows of every table of a page, without the headers. */
function tableRows(page: string): string[][] {
  return [...page.matchAll(/(?:^\|.*\n)+/gm)].flatMap(([table]) =>
    table
      .trimEnd()
      .split('\n')
      .slice(2)
      .map((line) =>
        line
          .split('|')
          .slice(1, -1)
          .map((cell) => cell.trim()),
      ),
  );
}
