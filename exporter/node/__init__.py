"""The node role: sample, attribute, integrate, publish an immutable snapshot."""
