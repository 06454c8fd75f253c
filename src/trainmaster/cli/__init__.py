"""The command line: one file per subcommand; shared code is in `support/`, sentences in `text/`."""
