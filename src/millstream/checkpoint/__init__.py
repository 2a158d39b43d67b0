"""Where state is kept, and how a job finds it again."""
