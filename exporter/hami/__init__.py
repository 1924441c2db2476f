"""What HAMi writes: shared-region cache files and annotations. Pure parsing plus careful file opening."""
