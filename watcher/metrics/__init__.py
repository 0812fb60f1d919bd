"""A watch's figures for Prometheus, and a dashboard of them. Imports `engine`."""
