"""Periods: rating open ones, stating them, verifying them."""
