import { chartStyle } from '../../plot/chart.js';

/** The style of the page and of the report: one column on a phone, three on a desk. */
export const pageStyle = `${chartStyle}
:root { color-scheme: light dark; --bg: #f6f7f9; --panel: #ffffff; --ink: #1b1f24; --soft: #57606a;
  --rule: #d8dee4; --accent: #0072b2; --good: #00704f; --bad: #b03a00; --heat: 213, 94, 0; }
@media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --panel: #151b23; --ink: #e6edf3;
  --soft: #9ca7b3; --rule: #30363d; --accent: #56b4e9; --good: #2fcf9f; --bad: #ff8a4c; --heat: 255, 138, 76; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.45 system-ui, sans-serif;
  font-variant-numeric: tabular-nums; }
header, main { max-width: 1360px; margin: 0 auto; padding: 0 20px; }
header { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: flex-start; justify-content: space-between;
  padding-top: 20px; }
h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 18px; margin: 32px 0 12px; }
h3 { font-size: 14px; margin: 0 0 2px; }
p { margin: 4px 0 8px; } .soft { color: var(--soft); }
.phase { font-size: 13px; font-weight: 600; padding: 2px 10px; border-radius: 10px; border: 1px solid var(--rule);
  color: var(--soft); white-space: nowrap; vertical-align: 3px; }
.phase.live { color: var(--good); border-color: currentColor; } .phase.silent, .phase.stopped { color: var(--bad); border-color: currentColor; }
.controls { display: flex; gap: 16px; align-items: center; } .controls p { margin: 0; }
#connection { min-width: 9em; text-align: right; }
button { font: inherit; color: var(--ink); background: var(--panel); border: 1px solid var(--rule); border-radius: 6px;
  padding: 5px 14px; min-width: 7.5em; cursor: pointer; }
button[aria-pressed=true] { border-color: var(--accent); color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
main:focus { outline: none; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 12px; top: 8px; background: var(--panel); padding: 6px 12px; }
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0 0; }
.headline > div, .plots > section, article { background: var(--panel); border: 1px solid var(--rule); border-radius: 10px;
  padding: 12px 16px; }
.headline dt { color: var(--soft); font-size: 13px; } .headline dd { margin: 0; font-size: 24px; line-height: 1.25; white-space: nowrap; }
.headline dd span { display: block; font-size: 12px; min-height: 1.3em; white-space: normal; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); gap: 12px; }
.plots .chart { display: block; width: 100%; height: auto; aspect-ratio: 400 / 230; }
.legend, .key { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px;
  color: var(--soft); min-height: 1.5em; }
.plots .chart.swatch { display: inline-block; width: 22px; height: 10px; aspect-ratio: auto; margin-right: 6px; }
.legend .value { color: var(--ink); }
.key { margin-bottom: 12px; } .key .t { padding: 1px 6px; color: var(--ink); }
details { font-size: 13px; } summary { cursor: pointer; color: var(--soft); width: fit-content; }
.scroll { overflow: auto; max-width: 100%; } details .scroll { max-height: 260px; }
table { border-collapse: collapse; font-size: 13px; } caption { text-align: left; color: var(--soft); padding: 4px 0; }
th, td { text-align: left; padding: 4px 24px 4px 0; border-bottom: 1px solid var(--rule); font-weight: 400; vertical-align: top;
  white-space: nowrap; }
td:last-child { white-space: normal; }
thead th { color: var(--soft); } details td, details th, th.figure, td.figure { text-align: right; padding: 3px 20px 3px 0; }
#flow, #waiting, #actors { background: var(--panel); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px; }
#waiting { margin-top: 12px; min-height: 120px; }
.tables { display: flex; flex-wrap: wrap; gap: 12px 48px; margin-top: 12px; }
.flow { display: block; width: 100%; min-width: 640px; max-width: 980px; margin: 0 auto; font-size: 13px; }
.flow .service { fill: var(--bg); stroke: var(--rule); stroke-width: 1.5; } .flow .queue { fill: none; stroke: var(--accent); stroke-width: 1.5; }
.flow .name { fill: var(--ink); font-size: 15px; font-weight: 600; } .flow .rate { fill: var(--soft); }
.flow .arrow { fill: none; stroke: var(--soft); stroke-width: 1.5; } .flow .arrow.policy { stroke-dasharray: 5 4; }
.flow .tip { fill: var(--soft); }
article { margin-bottom: 12px; }
pre { margin: 0; font: 14px/1.6 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.prompt { color: var(--soft); border-left: 3px solid var(--rule); padding-left: 10px; margin-bottom: 10px; max-height: 12em; overflow: auto; }
.rollouts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); gap: 8px 24px; margin: 0; padding-left: 28px; }
.rollouts > li { min-width: 0; } .verdict { font-size: 13px; color: var(--soft); margin: 0; } .good { color: var(--good); } .bad { color: var(--bad); }
.t { border-radius: 3px; } .p1 { background: rgba(var(--heat), 0.12); } .p2 { background: rgba(var(--heat), 0.24); }
.p3 { background: rgba(var(--heat), 0.36); } .p4 { background: rgba(var(--heat), 0.5); } .p5 { background: rgba(var(--heat), 0.62); }
@media (max-width: 640px) { header, main { padding: 0 12px; } #flow, #waiting, #actors { padding: 10px; }
  th, td, details td, details th, th.figure, td.figure { white-space: normal; padding-right: 5px; } table { font-size: 11px; } }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
@media print { .controls, .skip { display: none; } }
`;
