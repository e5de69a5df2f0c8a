import { fileURLToPath } from 'node:url';
import { readContracts, type Contract } from '../compat/servers/contract.js';
import { alignedTable, withSection } from './markdown-table.js';

export const backendsPage = fileURLToPath(new URL('../../../docs/backends.md', import.meta.url));

/** The page with what the suite `servers` finds at each server. */
export function updatedServers(page: string): string {
  const contracts = readContracts();
  const head = [
    'Server',
    'Losses',
    'Temperature other than 1',
    'Adapters',
    'A run, stopped and resumed',
    'How it was tested',
  ];
  const facts = contracts.flatMap(({ server, facts: of }) => [
    `- **${server}.** ${of.map(({ text }) => text).join(' ')}`,
  ]);
  const text = [alignedTable([head, ...contracts.map(rowOf)]), ...facts];
  return withSection(page, 'other servers', `${text[0]!}\n\n${facts.join('\n')}`);
}

function rowOf(contract: Contract): string[] {
  const { found, repository, files, read, notRun, file } = contract;
  return [
    contract.server,
    lossesOf(found.losses),
    found.temperature,
    found.adapters === 'none' ? 'none: `--sampler tinker`' : found.adapters,
    found.resumed ? `works (${found.run})` : `works, but is not resumed (${found.run})`,
    `[Contract](../test/compat/servers/${file}) of ${Object.keys(files).length} files of ${repository}, ` +
      `${read}. The server itself was not run: ${notRun}.`,
  ];
}

function lossesOf(losses: Contract['found']['losses']): string {
  const by = new Map<string, string[]>();
  for (const [loss, how] of Object.entries(losses)) {
    by.set(how, [...(by.get(how) ?? []), `\`${loss}\``]);
  }
  return [...by]
    .map(([how, names]) =>
      how === 'served' ? `served: ${names.join(', ')}` : `by \`${how}\`: ${names.join(', ')}`,
    )
    .join('; ');
}
