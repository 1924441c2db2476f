"""Budgets of tenants: what a month may cost, when a threshold is crossed, and where the month will end."""
