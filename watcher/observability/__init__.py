"""The watch's statistics for people and for Prometheus and OpenTelemetry, and health probes."""
