"""The only package that knows Spark: session, epoch jobs, slot processes, errors."""
