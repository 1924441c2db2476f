"""Alerts tried out before a night needs them: real programs play a scene, and what arrives is judged.

Exporters, accounting, Prometheus and Alertmanager are the real ones, on loopback; only time is shorter, by
one factor for every interval, range, wait and threshold.
"""
