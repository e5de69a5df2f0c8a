import { z } from 'zod';
import { whichRun } from '../existing-run/which-run.js';

/** Which run to show, and where its model is. */
const shown = {
  ...whichRun,
  modelDir: z
    .string()
    .min(1)
    .optional()
    .describe("Hugging Face directory of the run's model, to read its rollouts by."),
};

export const DashboardConfig = z.object({
  ...shown,
  dashboardPort: z.coerce
    .number()
    .int()
    .min(0)
    .max(65_535)
    .default(0)
    .describe('where the page is, on loopback; 0: any port that is free.'),
});
export const dashboardService = 'offbeat-dashboard';

export const ReportConfig = z.object({
  ...shown,
  out: z
    .string()
    .min(1)
    .optional()
    .describe("the file to write; by default report.html in the run's folder."),
});
export const reportService = 'offbeat-report';
