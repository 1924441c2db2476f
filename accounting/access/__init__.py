"""Who may do what: tokens, roles and the one place where a query is narrowed to a tenant's subtree."""
