"""The dashboard in a real browser, with a live manager and real jobs: `make test-web`."""
