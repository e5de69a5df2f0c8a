import { z } from 'zod';
import { port, string } from '../../shared/service/config-fields.js';
import { whichRun } from '../existing-run/find-run.js';

/** The run to show and the directory of its model. */
const shown = {
  ...whichRun,
  modelDir: string
    .optional()
    .describe("Hugging Face directory of the run's model, used to decode its rollouts."),
};

export const DashboardConfig = z.object({
  ...shown,
  dashboardPort: port.default(0).describe('loopback port of the page; 0 picks a free one.'),
});
export const dashboardService = 'offbeat-dashboard';

export const ReportConfig = z.object({
  ...shown,
  out: string.optional().describe("the file to write; by default report.html in the run's folder."),
});
export const reportService = 'offbeat-report';
