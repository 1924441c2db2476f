"""FOCUS, the FinOps Open Cost and Usage Specification: its columns and formats, and a lint of files.

Pure but for `reading`, which opens files. The specification is by the FinOps Foundation (CC-BY-4.0).
"""
