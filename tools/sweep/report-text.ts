import { escaped } from '../../cli/plot/markup.js';
import { formatSeconds } from '../../cli/up/summary.js';
import { problemsText } from './problem-counts.js';
import type { Report } from './report.js';
import type { Comparison, Limits } from './sweep-file.js';
import { cellTable, comparisonTable, markdownOf, type Table } from './table.js';

/** The report as Markdown, with its plot in `plot.svg` in the same folder. */
export function reportMarkdown(report: Report): string {
  const { sweep, comparisons, warnings } = report;
  const parts = [
    `# ${sweep.title}`,
    ...warnings.map((text) => `**Note.** ${text}`),
    ...sweep.about,
    `![${sweep.title}](plot.svg)`,
    markdownOf(tableOf(report)),
    ...comparisons.flatMap(({ spec, compared }) =>
      compared.length === 0 ? [] : [heading(spec), markdownOf(comparisonTable(compared))],
    ),
    ...notes(report),
  ];
  return `${parts.join('\n\n')}\n`;
}

/** The report as one page that loads no other file, in light and dark mode. */
export function reportHtml(report: Report): string {
  const { sweep, comparisons, warnings, svg } = report;
  const paragraph = (content: string) => `<p>${escaped(content)}</p>`;
  const body = [
    `<h1>${escaped(sweep.title)}</h1>`,
    ...warnings.map((text) => `<p><strong>Note.</strong> ${escaped(text)}</p>`),
    ...sweep.about.map(paragraph),
    `<figure>${svg}</figure>`,
    htmlTable(tableOf(report)),
    ...comparisons.flatMap(({ spec, compared }) =>
      compared.length === 0 ? [] : [paragraph(heading(spec)), htmlTable(comparisonTable(compared))],
    ),
    ...notes(report).map(paragraph),
  ];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(sweep.title)}</title>
<style>${pageStyle}</style>
</head>
<body>
${body.join('\n')}
</body>
</html>
`;
}

function tableOf({ sweep, cells }: Report): Table {
  return cellTable(sweep.measures, cells);
}

function heading({ measure, margin }: Comparison): string {
  const less = margin === undefined ? '' : `; up to ${100 * margin} less is no worse`;
  return `Differences of "${measure}" in percentage points${less}:`;
}

/** How the numbers were obtained, and what is needed to repeat them. */
function notes(report: Report): string[] {
  const { sweep, planned, results } = report;
  const seconds = results.reduce((sum, result) => sum + result.seconds, 0);
  const machines = [...new Set(results.map(({ machine }) => machine))];
  const models = [...new Set(results.map(({ modelDigest }) => modelDigest))];
  const { limits, seeds, settings } = sweep;
  const until = describeLimits(limits);
  const others = sweep.axes.flatMap(({ values }) =>
    values.flatMap(({ label, limits: own }) =>
      own === undefined ? [] : [`${label} until ${describeLimits(own)}`],
    ),
  );
  const given = Object.entries(settings).map(([key, value]) => `${key} ${String(value)}`);
  return [
    `Rates of ${evaluationsOf(report).join('; ')}; ` +
      'with the 95 % interval of a bootstrap over the problems, and of Student’s t over the seeds. Other numbers: the ' +
      'mean of the seeds, from the smallest to the largest. Differences are paired by problem and seed; "with other seeds" is Student’s t over the seeds.',
    `${results.length} of ${planned.length} runs with seeds ${seeds.join(', ')}, each until ${[until, ...others].join('; ')}` +
      `${given.length === 0 ? '' : `, with ${given.join(', ')}`}; all else by default.` +
      (results.length === 0
        ? ''
        : ` They took ${formatSeconds(seconds)} on ${machines.join('; ')}. ` +
          `SHA-256 of the model: ${models.join('; ')}.`),
  ];
}

/** The evaluations that the measures are of, with the problems that the runs were measured on and the settings. */
function evaluationsOf({ sweep, problems }: Report): string[] {
  return problems.map((count) => {
    const { at } = count;
    const further = sweep.furtherEvaluations.find(({ name }) => name === at);
    if (further === undefined) {
      const which = at === 'start' ? 'first' : 'last';
      return `the ${which} evaluation of a run, of ${problemsText(count)}, ${sweep.evaluation.samples} answers to each`;
    }
    const given = Object.entries(further.settings).map(([key, value]) => `${key} ${String(value)}`);
    return `the evaluation "${at}" by offbeat eval, of ${problemsText(count)}, with ${given.join(', ')}`;
  });
}

/** `9 steps or 2 minutes` */
function describeLimits(limits: Limits): string {
  const parts = Object.entries(limits).map(([what, count]) => `${count} ${what}`);
  return parts.join(' or ');
}

function htmlTable({ head, rows }: Table): string {
  const row = (name: string, texts: readonly string[]) =>
    `<tr>${texts.map((content) => `<${name}>${escaped(content)}</${name}>`).join('')}</tr>`;
  const body = rows.map((texts) => row('td', texts)).join('\n');
  return `<div class="wide"><table>\n<thead>${row('th', head)}</thead>\n<tbody>\n${body}\n</tbody>\n</table></div>`;
}

const pageStyle = `
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --rule: #d8dee4; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --rule: #30363d; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1.5rem 0; } svg { width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { border-bottom: 1px solid var(--rule); padding: 0.3rem 0.8rem; text-align: left; white-space: nowrap; }
`;
