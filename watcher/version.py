"""The version, as every request's User-Agent has it too."""

__version__ = "0.1.0"
