"""docs/lake.md's own session, run on Delta's Spark by the words of a command: prints the rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tests.support.eventually import eventually
from tests.support.lakes import ROOT, session_of

PAGE = (ROOT / "docs" / "lake.md").read_text()


def main(words: list[str]) -> None:
    """Run the block of `merge_into` twice, in the folder that the last word names."""
    *words, stream, folder = words
    spark = session_of(words)
    (text,) = re.findall(r"```python\n([^`]*merge_into[^`]*)```", PAGE)
    names: dict[str, Any] = {}
    to = str(Path(folder, "orders"))
    exec(text.replace('"orders"', f'"{stream}"').replace('"lake/orders"', f'"{to}"'), names)
    for _ in range(2):
        query = names["start"](spark)
        query.processAllAvailable()
        query.stop()
        eventually(Path(folder, "changed").exists)  # between the two
    for row in spark.read.format("delta").load(to).orderBy("pk").collect():
        print(row["pk"], row["total"])
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
