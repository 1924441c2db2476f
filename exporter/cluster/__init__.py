"""The cluster role: node locks, pending pods, reservations, capacity, bypass, facts of the whole cluster."""
