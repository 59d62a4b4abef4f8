"""Programs that fork with a client in them: run by test_forks and test_prefork_servers."""
