"""A watch's figures for Prometheus, and answers to probes. Imports `engine`."""
