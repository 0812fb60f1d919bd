"""The watch's statistics for displays, Prometheus and OpenTelemetry, and its health probes."""
