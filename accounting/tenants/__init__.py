"""Tenants and billing accounts: who pays."""
