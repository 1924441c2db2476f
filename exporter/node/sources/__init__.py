"""What the node role reads each tick: cache files, NVML, processes, pods. Nothing is decided here."""
