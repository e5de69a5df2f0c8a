import { createHash } from 'node:crypto';

/** The SHA-256 of bytes, or of a text as UTF-8, in hexadecimal. */
export function sha256(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Views of consecutive parts of `bytes`, each of `chunkBytes` but for the last; none if there are no bytes. */
export function chunksOf(bytes: Uint8Array, chunkBytes: number): Uint8Array[] {
  const count = Math.ceil(bytes.byteLength / chunkBytes);
  return Array.from({ length: count }, (_, i) =>
    bytes.subarray(i * chunkBytes, (i + 1) * chunkBytes),
  );
}
