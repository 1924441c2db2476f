"""From a snapshot to a page: the collectors, the encoders, the HTTP server. Touches no source."""
