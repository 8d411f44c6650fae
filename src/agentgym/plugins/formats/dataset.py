"""rows: records of a dataset on disk, in Parquet or as Hugging Face's folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym.errors import MissingExtraError, UsageError

_STREAMS = ("*.arrow", "*/*.arrow")
_TABLES = ("*.parquet", "*/*.parquet")


def is_dataset(path: Path) -> bool:
    """Return whether a path is a folder, or a file in Parquet or Arrow."""
    return path.is_dir() or path.suffix in (".parquet", ".arrow")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a Parquet file, of a folder of such files, or of a dataset.

    A dataset is a folder that ``Dataset.save_to_disk`` of Hugging Face wrote. Fields
    without a value are left out: a table has the keys of all records in each record.

    Raises:
        MissingExtraError: pyarrow is not installed.
        UsageError: There are no such files, or they cannot be read.
    """
    try:
        import pyarrow as arrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise MissingExtraError("datasets", "Datasets on disk") from None
    files = [path]
    if path.is_dir():
        files = sorted(file for end in (*_STREAMS, *_TABLES) for file in path.glob(end))
    if not files:
        raise UsageError(
            f"{path} has no .arrow and no .parquet file: give the folder of a data "
            "set, or a file."
        )
    for file in files:
        try:
            if file.suffix == ".parquet":
                table = parquet.read_table(file)
            else:
                with arrow.memory_map(str(file)) as source:
                    table = ipc.open_stream(source).read_all()
        except (OSError, arrow.ArrowInvalid) as error:
            raise UsageError(f"{file} cannot be read: {error}.") from None
        yield from map(_with_values, table.to_pylist())


def _with_values(value: Any) -> Any:
    """Return a JSON value without the fields that are None, at any depth."""
    if isinstance(value, dict):
        found = {key: _with_values(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None}
    if isinstance(value, list):
        return [_with_values(each) for each in value]
    return value
