"""The demo's live table: what metric pages and accounting say right now, for a person to watch."""
