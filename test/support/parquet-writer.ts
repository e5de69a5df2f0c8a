/** A column of 64-bit integers, or of lists of them that are not empty. */
type Column = readonly number[] | readonly (readonly number[])[];

/**
 * A parquet file with one group of rows, not compressed, and one page of plain values for each column.
 *
 * Source: github.com/apache/parquet-format (`parquet.thrift`, `Encodings.md`) and Thrift's compact protocol.
 */
export function parquetFile(columns: Readonly<Record<string, Column>>): Buffer {
  const parts: Buffer[] = [Buffer.from('PAR1')];
  const schema = [struct({ 4: text('root'), 5: i32(Object.keys(columns).length) })];
  const chunks: Value[] = [];
  for (const [name, rows] of Object.entries(columns)) {
    const lists = rows.flatMap((row) => (typeof row === 'number' ? [] : [row]));
    const values = rows.flat();
    const page = Buffer.concat([...(lists.length > 0 ? levels(lists) : []), int64s(values)]);
    const [size, offset] = [i32(page.length), Buffer.concat(parts).length];
    const header = struct({ 1: dataPage, 2: size, 3: size, 5: pageHeader(values.length) }).bytes;
    parts.push(header, page);
    schema.push(...(lists.length > 0 ? listSchema(name) : [leafSchema(name)]));
    const path = lists.length > 0 ? [name, 'list', 'element'] : [name];
    const bytes = i64(header.length + page.length);
    const meta = struct({
      ...{ 1: int64, 2: listOf([plain, levelRuns]), 3: listOf(path.map(text)), 4: uncompressed },
      ...{ 5: i64(values.length), 6: bytes, 7: bytes, 9: i64(offset) },
    });
    chunks.push(struct({ 2: i64(offset), 3: meta }));
  }
  const rows = i64(Object.values(columns)[0]!.length);
  const group = struct({ 1: listOf(chunks), 2: i64(Buffer.concat(parts).length - 4), 3: rows });
  const footer = struct({ 1: i32(1), 2: listOf(schema), 3: rows, 4: listOf([group]) }).bytes;
  return Buffer.concat([...parts, footer, uint32(footer.length), Buffer.from('PAR1')]);
}

/** A value in Thrift's compact protocol. */
interface Value {
  readonly type: number;
  readonly bytes: Buffer;
}

const i32 = (value: number): Value => ({ type: 5, bytes: varint(2 * value) }); // zigzag of what is not negative
const i64 = (value: number): Value => ({ ...i32(value), type: 6 });
const text = (value: string): Value => ({
  type: 8,
  bytes: Buffer.concat([varint(value.length), Buffer.from(value)]),
});

function listOf(values: readonly Value[]): Value {
  const type = values[0]!.type; // of fewer than 15 values
  return {
    type: 9,
    bytes: Buffer.concat([Buffer.of((values.length << 4) | type), ...values.map(bytesOf)]),
  };
}

function struct(fields: Readonly<Record<number, Value>>): Value {
  let last = 0;
  const parts = Object.entries(fields).map(([id, { type, bytes }]) => {
    const delta = Number(id) - last;
    last = Number(id);
    return Buffer.concat([Buffer.of((delta << 4) | type), bytes]);
  });
  return { type: 12, bytes: Buffer.concat([...parts, Buffer.of(0)]) };
}

const bytesOf = ({ bytes }: Value): Buffer => bytes;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.of(...bytes, value);
}

// Members of the enumerations in parquet.thrift.
const [dataPage, plain, uncompressed, required] = [i32(0), i32(0), i32(0), i32(0)];
const [int64, repeated, levelRuns, listType] = [i32(2), i32(2), i32(3), i32(3)];

const leafSchema = (name: string) => struct({ 1: int64, 3: required, 4: text(name) });
const listSchema = (name: string) => [
  struct({ 3: required, 4: text(name), 5: i32(1), 6: listType }),
  struct({ 3: repeated, 4: text('list'), 5: i32(1) }),
  leafSchema('element'),
];
const pageHeader = (values: number) =>
  struct({ 1: i32(values), 2: plain, 3: levelRuns, 4: levelRuns });

/** Where each list begins, and that no value is missing, as runs of equal levels. */
function levels(lists: readonly (readonly number[])[]): Buffer[] {
  const run = (count: number, level: number) => [varint(2 * count), Buffer.of(level)];
  const repetition = lists.flatMap(({ length }) => [
    ...run(1, 0),
    ...(length > 1 ? run(length - 1, 1) : []),
  ]);
  const definition = run(lists.flat().length, 1);
  return [repetition, definition].map((runs) => {
    const bytes = Buffer.concat(runs);
    return Buffer.concat([uint32(bytes.length), bytes]);
  });
}

function int64s(values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(8 * values.length);
  values.forEach((value, i) => bytes.writeBigInt64LE(BigInt(value), 8 * i));
  return bytes;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
