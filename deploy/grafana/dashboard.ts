import {
  LegendDisplayMode,
  LegendPlacement,
  SortOrder,
  StackingConfigBuilder,
  StackingMode,
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common';
import {
  DashboardBuilder,
  DashboardCursorSync,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  VariableRefresh,
  type Dashboard,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder } from '@grafana/grafana-foundation-sdk/timeseries';
import { isAnythingBroken } from './is-anything-broken.js';
import { isItLearning } from './is-it-learning.js';
import { isItOffPolicy } from './is-it-off-policy.js';
import type { Panel, Question } from './question.js';
import { whoWaitsForWhom } from './who-waits-for-whom.js';

export const questions = [isItLearning, isItOffPolicy, whoWaitsForWhom, isAnythingBroken];

const datasource = { type: 'prometheus', uid: '${datasource}' };

/* oxlint-disable typescript/no-deprecated -- the format before version 13, which every Grafana since 10 reads */
/** Returns a question as a Grafana dashboard with two panels per row and a variable for the runs. */
export function dashboardOf({ uid, title, description, panels }: Question): Dashboard {
  const dashboard = new DashboardBuilder(title)
    .uid(uid)
    .description(description)
    .tags(['offbeat'])
    .time({ from: 'now-1h', to: 'now' })
    .refresh('10s')
    .tooltip(DashboardCursorSync.Crosshair)
    .withVariable(
      new DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'),
    )
    .withVariable(
      new QueryVariableBuilder('run')
        .label('Run')
        .datasource(datasource)
        .query('label_values(rl_steps_total, run)')
        .refresh(VariableRefresh.OnTimeRangeChanged)
        .multi(true)
        .includeAll(true)
        .allValue('.*'), // includes processes that are scraped without a run label
    );
  for (const panel of panels) dashboard.withPanel(panelOf(panel));
  return dashboard.build();
}
/* oxlint-enable */

function panelOf({ title, description, unit, queries, isStacked = false }: Panel): PanelBuilder {
  const panel = new PanelBuilder()
    .title(title)
    .description(description)
    .datasource(datasource)
    .unit(unit)
    .span(12)
    .height(8)
    .fillOpacity(isStacked ? 40 : 8)
    .stacking(new StackingConfigBuilder().mode(isStacked ? StackingMode.Normal : StackingMode.None))
    .legend(
      new VizLegendOptionsBuilder()
        .showLegend(true)
        .displayMode(LegendDisplayMode.List)
        .placement(LegendPlacement.Bottom),
    )
    .tooltip(
      new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi).sort(SortOrder.Descending),
    );
  for (const [i, { promql, legend }] of queries.entries()) {
    const refId = String.fromCharCode('A'.charCodeAt(0) + i);
    panel.withTarget(
      new DataqueryBuilder().refId(refId).datasource(datasource).expr(promql).legendFormat(legend),
    );
  }
  return panel;
}
