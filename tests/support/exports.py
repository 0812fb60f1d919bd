"""A table's exports as DynamoDB lays them out in S3."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders"
Item = dict[str, Any]


def full(root: Path, items: Sequence[Item], time: float, *, files: int = 3, **more: Any) -> Path:
    """A full export below `root`, at that moment (epoch seconds)."""
    lines = [{"Item": item} for item in items]
    parts = [lines[number::files] for number in range(files)]
    return _export(root, "full", "full/data", parts, exportTime=_text(time), **more)


def incremental(
    root: Path,
    before: Mapping[str, Item],
    after: Mapping[str, Item],
    since: float,
    until: float,
    **more: Any,
) -> Path:
    """What is another in `after` than in `before`, by the items' `pk`."""
    lines = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        line: Item = {
            "Metadata": {"WriteTimestampMicros": {"N": str(int(until * 1e6) - 1)}},
            "Keys": {"pk": {"S": name}},
        }
        images = {"OldImage": old, "NewImage": new}
        lines.append({**line, **{name: image for name, image in images.items() if image}})
    span = {"exportFromTime": _text(since), "exportToTime": _text(until)}
    return _export(
        root,
        f"since-{int(since)}",
        "data",
        [lines, []],
        exportType="INCREMENTAL_EXPORT",
        outputView="NEW_AND_OLD_IMAGES",
        **span,
        **more,
    )


def _export(root: Path, name: str, data: str, parts: Sequence[list[Item]], **more: Any) -> Path:
    folder = root / "AWSDynamoDB" / name
    folder.mkdir(parents=True)
    (root / "AWSDynamoDB" / data).mkdir(parents=True, exist_ok=True)
    entries = []
    for number, lines in enumerate(parts):
        key = f"AWSDynamoDB/{data}/{name}{number}.json.gz"
        content = gzip.compress("".join(json.dumps(each) + "\n" for each in lines).encode())
        (root / key).write_bytes(content)
        md5 = hashlib.md5(content, usedforsecurity=False)
        entries.append(
            {
                "itemCount": len(lines),
                "md5Checksum": base64.b64encode(md5.digest()).decode(),
                "etag": f"{md5.hexdigest()}-1",
                "dataFileS3Key": f"a-prefix/{key}",
            }
        )
    summary = {
        "version": "2020-06-30",
        "tableArn": ARN,
        "tableId": "b116b490-6460-4d4a-9a6b-5d360abf4fb3",
        "s3Bucket": "exports",
        "s3Prefix": "a-prefix",
        "manifestFilesS3Key": f"a-prefix/AWSDynamoDB/{name}/manifest-files.json",
        "itemCount": sum(map(len, parts)),
        "outputFormat": "DYNAMODB_JSON",
        **more,
    }
    (folder / "manifest-summary.json").write_text(json.dumps(summary))
    (folder / "manifest-files.json").write_text("".join(json.dumps(e) + "\n" for e in entries))
    return folder


def _text(time: float) -> str:
    return (
        datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
