import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { authorityFile, certificateIn } from './keys.js';

const shortestMs = 30 * 86_400_000; // whoever adds actors should not have to think of it for a month

/**
 * Whether the certificate that lies in `folder` does for these names and addresses, for 30 days more: then
 * nobody need be given another authority. False where there is none that can be read.
 */
export async function hasCertificateFor(
  folder: string,
  hosts: readonly string[],
  nowMs = Date.now(),
): Promise<boolean> {
  const { certificateFile, keyFile } = certificateIn(folder);
  try {
    const certificate = new X509Certificate(await readFile(certificateFile));
    const authority = new X509Certificate(await readFile(join(folder, authorityFile)));
    const key = createPrivateKey(await readFile(keyFile));
    return (
      certificate.verify(authority.publicKey) &&
      certificate.checkPrivateKey(key) &&
      Date.parse(certificate.validTo) - nowMs > shortestMs &&
      hosts.every((host) =>
        isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host),
      )
    );
  } catch {
    return false; // one of the three is missing or broken
  }
}
