"""The web console: where analysts ask and compare, and stewards see where the budget goes."""
