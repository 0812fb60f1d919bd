"""What MkDocs does to the pages: the README is the first one, files beside docs/ are only named."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_OUTSIDE = re.compile(r"\[([^]]*)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")
_HERO = """\
---
hide: [navigation]
---

<div class="hero" markdown>

# watcher

{about}

[Get started](watching.md){{ .md-button .md-button--primary }}
[How it works](architecture.md){{ .md-button }}

</div>

"""


def on_files(files: Files, config: Any) -> Files:
    """Adds the README, the changelog, and the pages that are made from the code."""
    root = Path(config["docs_dir"]).parent
    generated = {
        "index.md": _landing(_moved((root / "README.md").read_text("utf-8"))),
        "changelog.md": _moved((root / "CHANGELOG.md").read_text("utf-8")),
        "site.css": Path(__file__).with_name("site.css").read_text("utf-8"),
        **_reference(),
    }
    for name, content in generated.items():
        files.append(File.generated(config, name, content=content))
    return files


def _moved(text: str) -> str:
    """Returns a page of the folder above as one of docs/."""
    text = re.sub(r"\]\((?!https?:|#|docs/|CHANGELOG)", "](../", text)
    return text.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")


def _landing(readme: str) -> str:
    """Returns the README with its first lines as the top of a front page."""
    _, about, rest = readme.split("\n\n", 2)
    return _HERO.format(about=" ".join(about.split())) + rest


def _reference() -> dict[str, str]:
    place = Path(__file__).with_name("reference.py")
    spec = importlib.util.spec_from_file_location("reference", place)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    pages: dict[str, str] = reference.pages()
    return pages


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Names a file of the repository, which is no page of the site; a missing one is an error."""
    root = Path(config["docs_dir"]).parent

    def named(match: re.Match[str]) -> str:
        text, path = match.groups()
        if not (root / path).exists():
            raise FileNotFoundError(f"{path}, which a page links to")
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _OUTSIDE.sub(named, markdown)


def on_page_content(html: str, **_: Any) -> str:
    r"""Shows `a\|b` in a table's cell as GitHub does: without the backslash."""
    return re.sub(r"<code>[^<]*</code>", lambda found: found[0].replace(r"\|", "|"), html)
