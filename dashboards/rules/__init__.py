"""Recording rules and alerts: one module a subject, one table of groups, nothing but values and text.

Every expression carries `cluster`, because node names and GPU UUIDs repeat between clusters, takes the
maximum before any sum, because a second scrape of the same exporter must double nothing, and is written
for the PromQL of Prometheus 2.42.
"""
