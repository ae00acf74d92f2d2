"""Names, scopes and types: a tree becomes release points and the SQL that runs on their results."""
