"""Why is my page empty? One look at everything an exporter needs, for `slicemeter exporter check`.

It reads what the roles read, with their own readers, once, each question within a few seconds; it writes
nothing, holds nothing that a running exporter wants, and leaves no trace in the cluster or in accounting.
"""
