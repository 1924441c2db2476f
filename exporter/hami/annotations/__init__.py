"""The grammar of the annotations that HAMi (and Volcano's plugin) write on pods and nodes.

Every parser goes by shape, never by version: scheduler and device plugin can differ in version, and pods
keep the text of the version that scheduled them. A parser never raises on bad text: what can be read is
kept, what cannot is a `Flaw` with a reason word. Source: `reference/hami-kubernetes.md`.
"""
