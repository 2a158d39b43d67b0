"""Long-running jobs with kills, whose memory, files, descriptors, threads and latency must not grow."""
