"""The empty PostgreSQL behind the proxy: tables, roles and types, and the one that is ours."""
