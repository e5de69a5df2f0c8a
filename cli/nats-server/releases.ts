/** The release that is fetched where no package and no installed server is at hand. */
export const pinnedRelease = {
  version: '2.14.5',
  /**
   * SHA-256 of the release's archives by `<os>-<architecture>`, from its SHA256SUMS file as two
   * independent package collections recorded it.
   */
  sha256: {
    'linux-amd64': '5e3b603d47c447bda1f77f9ac16dbf91c90aac4ff3681f8fbbc7201e4ed99355',
    'linux-arm64': '673a98d3faa79dde3f9ebf16d6dfac36a5f694e7ad2015e4954dd7939c85cd4c',
    'darwin-amd64': 'f95c98d6b6ed2b63c5681b46b092c9585c99767d547cf495730c329234625e96',
    'darwin-arm64': 'ddd907854d9a2de834af133fa396915fe6442fe6d8909ae31390d1ea7a0fea50',
  } as Readonly<Record<string, string>>,
  baseUrl: 'https://github.com/nats-io/nats-server/releases/download',
};

export type Release = typeof pinnedRelease;

/** The archive for a platform as Node names it, or undefined when none is published for it. */
export function releaseArchive(
  release: Release,
  platform: string,
  architecture: string,
): { url: string; sha256: string } | undefined {
  const cpu = { x64: 'amd64', arm64: 'arm64' }[architecture];
  const target = `${platform}-${cpu ?? architecture}`;
  const sha256 = release.sha256[target];
  if (sha256 === undefined) return undefined;
  const name = `nats-server-v${release.version}-${target}.tar.gz`;
  return { url: `${release.baseUrl}/v${release.version}/${name}`, sha256 };
}
