"""The command line: its commands, options, help, completion and output."""

from watcher.cli.main import main as main
