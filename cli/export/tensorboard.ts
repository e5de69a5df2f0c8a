import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { StepRow } from '../read-journal.js';

/**
 * The bytes of a TensorBoard event file: its version, then one event per step with one scalar per metric.
 *
 * Source: event.proto and summary.proto of TensorBoard, record_writer.h of TensorFlow.
 */
export function eventFile(rows: readonly StepRow[]): Uint8Array {
  const [first] = rows;
  const version = message((event) => {
    event.tag(1, WireType.Bit64).double((first?.at ?? 0) / 1_000); // wall_time
    event.tag(3, WireType.LengthDelimited).string('brain.Event:2'); // file_version
  });
  return Buffer.concat([version, ...rows.map(eventOf)].map(record));
}

/** The name that TensorBoard knows an event file by: the time of its first event, in seconds. */
export function eventFileName([first]: readonly StepRow[]): string {
  return `events.out.tfevents.${Math.floor((first?.at ?? 0) / 1_000)}.offbeat`;
}

/** Whether a file is one that this command wrote under such a name. */
export function isEventFile(name: string): boolean {
  return /^events\.out\.tfevents\.\d+\.offbeat$/.test(name);
}

function eventOf({ step, at, metrics }: StepRow): Uint8Array {
  return message((event) => {
    event.tag(1, WireType.Bit64).double(at / 1_000); // wall_time
    event.tag(2, WireType.Varint).int64(step);
    event.tag(5, WireType.LengthDelimited).fork(); // summary
    for (const [name, value] of Object.entries(metrics)) {
      event.tag(1, WireType.LengthDelimited).fork(); // value
      event.tag(1, WireType.LengthDelimited).string(name); // tag
      event.tag(2, WireType.Bit32).float(value); // simple_value
      event.join();
    }
    event.join();
  });
}

function message(write: (writer: BinaryWriter) => void): Uint8Array {
  const writer = new BinaryWriter();
  write(writer);
  return writer.finish();
}

/** A TFRecord: length, its checksum, the data, their checksum. */
function record(data: Uint8Array): Uint8Array {
  const framed = Buffer.alloc(8 + 4 + data.byteLength + 4);
  framed.writeBigUInt64LE(BigInt(data.byteLength), 0);
  framed.writeUInt32LE(masked(crc32c(framed.subarray(0, 8))), 8);
  framed.set(data, 12);
  framed.writeUInt32LE(masked(crc32c(data)), 12 + data.byteLength);
  return framed;
}

/** Masked (rotated and shifted), since a CRC over data that contain a CRC is weak. */
function masked(crc: number): number {
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}

/** CRC-32C (Castagnoli), reflected: RFC 3720, appendix B.4. */
const polynomial = 0x82f63b78;

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) {
    remainder = remainder & 1 ? (remainder >>> 1) ^ polynomial : remainder >>> 1;
  }
  return remainder;
});

function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = table[(crc ^ byte) & 0xff]! ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
