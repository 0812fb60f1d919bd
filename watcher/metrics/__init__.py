"""A watch's figures for Prometheus, a dashboard of them, and answers to probes. Imports `engine`."""
