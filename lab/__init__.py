"""A cluster without GPUs: simulated nodes, a Kubernetes API double, workloads, scenarios, a golden month."""
