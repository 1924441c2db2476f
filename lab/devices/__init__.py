"""Simulated GPUs behind the same interface as NVML; a device's state is a function of time."""
