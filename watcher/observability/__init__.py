"""The watch's statistics for displays and Prometheus, and its health probes."""
