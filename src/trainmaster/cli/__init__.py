"""The command line: one file per subcommand, and the only place that words things for people."""
