"""What outlives the manager: the event log, snapshots of its state, jobs and their stories."""
