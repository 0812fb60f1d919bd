"""The version, as every request's User-Agent has it too, and what the package is called."""

__version__ = "0.2.0"
LINE = f"watcher {__version__}"
"""What `--version` prints."""
PACKAGE = "dynamodb-watcher"
"""On PyPI `watcher` is somebody else's program; imports and commands are `watcher` all the same."""

NO_WINDOWS = (
    "watcher runs on Linux and macOS; on Windows, install it in WSL: "
    "https://learn.microsoft.com/windows/wsl/install"
)
"""The error on Windows, which has neither forks nor the pipes and locks that workers need."""


def install(extra: str) -> str:
    """Returns the command that installs what an extra needs, from where the package itself came.

    https://packaging.python.org/en/latest/specifications/direct-url/
    """
    # Not at the top: 100 ms of each start, for a line that few ever see.
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        written = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        written = None
    origin = json.loads(written) if written else {}
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{url2pathname(urlsplit(origin['url']).path)}[{extra}]'"
    if "url" not in origin:
        return f"pip install '{PACKAGE}[{extra}]'"
    vcs = origin.get("vcs_info", {})
    url = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else origin["url"]
    return f"pip install '{PACKAGE}[{extra}] @ {url}'"
