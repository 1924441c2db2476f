"""From one tick's results to what a scrape gets."""
