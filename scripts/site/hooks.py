"""What MkDocs does to the pages: the README is the first one, files beside docs/ are only named."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_OUTSIDE = re.compile(r"\[([^]]*)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Begin with the README, whose links are from the folder above; end with the reference."""
    root = Path(config["docs_dir"]).parent
    text = (root / "README.md").read_text("utf-8")
    text = re.sub(r"\]\((?!https?:|#|docs/)", "](../", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    place = Path(__file__).with_name("reference.py")
    spec = importlib.util.spec_from_file_location("reference", place)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    files.append(File.generated(config, "reference.md", content=reference.text()))
    return files


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """A file of the repository is no page of the site; one that is not there is an error."""
    root = Path(config["docs_dir"]).parent

    def named(match: re.Match[str]) -> str:
        text, path = match.groups()
        if not (root / path).exists():
            raise FileNotFoundError(f"{path}, which a page links to")
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _OUTSIDE.sub(named, markdown)
