/** The launcher's plain JavaScript, as the tests use it: it is not compiled, so it is found by its place. */
const folder = new URL('../../../cli/', import.meta.url);

export const scriptsFolder = folder;

export interface Staleness {
  whyInstallIsStale(root: string): string | undefined;
  sourceFingerprint(root: string): string;
  whyBuildIsStale(root: string, fingerprint: string, file: string): string | undefined;
  orphanedOutputs(root: string): string[];
}

export interface RunTests {
  readonly chooseTests: (
    files: string[],
    filters: string[],
  ) => { files: string[]; unmatched: string[] };
}

export async function importScript<Script>(name: string): Promise<Script> {
  return (await import(new URL(name, folder).href)) as Script;
}
