import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { authorityFile, certificateIn } from './keys.js';

const shortestMs = 30 * 86_400_000; // whoever adds actors should not have to think of it for a month

/**
 * Whether the certificate that lies in `folder` does for these names and addresses, for 30 days more: then
 * nobody need be given another authority. False where there is none.
 */
export async function hasCertificateFor(
  folder: string,
  hosts: readonly string[],
  nowMs = Date.now(),
): Promise<boolean> {
  const { certificateFile, keyFile } = certificateIn(folder);
  const files = [certificateFile, join(folder, authorityFile), keyFile];
  const texts = await Promise.all(files.map((file) => readFile(file))).catch(() => undefined);
  if (texts === undefined) return false;
  const [certificate, authority] = [new X509Certificate(texts[0]!), new X509Certificate(texts[1]!)];
  return (
    certificate.verify(authority.publicKey) &&
    certificate.checkPrivateKey(createPrivateKey(texts[2]!)) &&
    Date.parse(certificate.validTo) - nowMs > shortestMs &&
    hosts.every((host) =>
      isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host),
    )
  );
}
