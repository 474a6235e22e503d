"""Real servers that speak as the clouds do, for tests: started on first use, gone with the test run."""
