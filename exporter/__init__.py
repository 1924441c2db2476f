"""The exporter: one role on every GPU node, one role per cluster.

The node role reads HAMi-core's cache files, NVML and pod annotations and turns them into counters;
the cluster role watches what no node can see. Both serve Prometheus and push facts to accounting.
"""
