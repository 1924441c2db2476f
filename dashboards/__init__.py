"""Grafana dashboards, recording rules and alerts, generated from the metric catalogue."""
