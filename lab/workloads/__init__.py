"""Programs of the laboratory that write true HAMi-core regions, as real containers would."""
