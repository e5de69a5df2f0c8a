import { loadSimulateConfig, comparisonsOf } from '../../tools/simulate/simulate.js';
import { comparisonTable } from '../../tools/simulate/comparison-table.js';
import { alignedTable, withSection } from './markdown-table.js';

export const simulatedPage = 'docs/performance.md';

/** The tables of the page, by the name of their section, and the commands that print them. */
export const simulatedTables: Readonly<Record<string, string>> = {
  'the loop': 'npm run simulate',
  'few groups in flight':
    'npm run simulate -- --policies wait,just-in-time,paced,tokens --bounds 4,8,16 --groups-in-flight 24',
  'short answers':
    'npm run simulate -- --policies just-in-time,paced --bounds 2,4,8,16 --sigma 0.5 --num-minibatches 4',
  'more spare answers': 'npm run simulate -- --policies spare --bounds 2,4 --spare-answers 4',
};

/** The page with its tables as the commands print them. */
export async function updatedSimulations(page: string): Promise<string> {
  let updated = page;
  for (const [section, command] of Object.entries(simulatedTables)) {
    const flags = command.split(/\s+/).slice(4);
    const { head, rows } = comparisonTable(await comparisonsOf(loadSimulateConfig(flags, {})));
    updated = withSection(updated, section, alignedTable([head, ...rows]));
  }
  return updated;
}
