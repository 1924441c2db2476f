"""Where device readings come from: the source's interface, and NVML behind it.

The one room that knows pynvml.
"""
