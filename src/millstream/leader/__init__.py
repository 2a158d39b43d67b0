"""High availability: leader election, leadership of jobs, and fencing of deposed leaders."""
