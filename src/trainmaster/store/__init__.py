"""What must outlive the daemon: the event log, snapshots of its state, jobs and their stories."""
