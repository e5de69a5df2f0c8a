import { z } from 'zod';
import { port, string } from '../../shared/service/config-fields.js';
import { whichRun } from '../existing-run/find-run.js';

/** Which run to show, and where its model is. */
const shown = {
  ...whichRun,
  modelDir: string
    .optional()
    .describe("Hugging Face directory of the run's model, to read its rollouts by."),
};

export const DashboardConfig = z.object({
  ...shown,
  dashboardPort: port
    .default(0)
    .describe('where the page is, on loopback; 0: any port that is free.'),
});
export const dashboardService = 'offbeat-dashboard';

export const ReportConfig = z.object({
  ...shown,
  out: string.optional().describe("the file to write; by default report.html in the run's folder."),
});
export const reportService = 'offbeat-report';
