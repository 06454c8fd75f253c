"""The command line: one file per subcommand; what several share is in `support/`, sentences in `text/`."""
