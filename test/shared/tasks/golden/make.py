"""Makes the parquet files beside it, with pyarrow: the layout that the datasets library writes."""

import pathlib

import pyarrow
import pyarrow.parquet

rows = [([44, 19, 35], 98), ([63, 95, 96], 64), ([49, 16, 50, 1], 20), ([3, 7, 21], 84)]
columns = {
    "target": pyarrow.array([target for _, target in rows], pyarrow.int64()),
    "nums": pyarrow.array([nums for nums, _ in rows], pyarrow.list_(pyarrow.int64())),
}
here = pathlib.Path(__file__).parent
for compression in ["none", "snappy", "gzip", "zstd"]:
    pyarrow.parquet.write_table(
        pyarrow.table(columns),
        here / f"{compression}.parquet",
        compression=compression,
        row_group_size=3,
    )
